"""The service with a real Ollama behind it: a model of ours, made there once, asked through the port."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.contract.subjects import free_port
from tests.support.running_service import RunningService, running_service

pytestmark = [pytest.mark.real_model, pytest.mark.ollama]


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, demo_model: Path, ollama_binary: str, ollama_store: Path
) -> Iterator[RunningService]:
    settings = {
        "LOCALLLM_ENGINE_OLLAMA_PATH": ollama_binary,
        "LOCALLLM_ENGINE_OLLAMA_URL": f"http://127.0.0.1:{free_port()}",
        "LOCALLLM_ENGINE_DEFAULT": "ollama",
        "LOCALLLM_ENGINE_CONTEXT_LENGTH": "512",
        "OLLAMA_MODELS": str(ollama_store),
    }
    with running_service(tmp_path_factory.mktemp("home"), demo_model, settings) as service:
        yield service


def complete(service: RunningService, **fields: object) -> httpx.Response:
    body = {"model": service.model, "prompt": "1, 2, 3, 4, 5, 6,", "max_tokens": 8, "temperature": 0} | fields
    return httpx.post(f"{service.url}/v1/completions", json=body, timeout=90)


def test_an_answer_comes_from_ollama_with_its_figures(service: RunningService) -> None:
    answer = complete(service)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 8
    assert answer.json()["usage"]["prompt_tokens"] > 8
    (model,) = [m for m in httpx.get(f"{service.url}/v1/models").json()["data"] if m["loaded"]]
    assert (model["engine"], model["context_length"]) == ("ollama", 512)


def test_a_prompt_that_is_too_long_is_refused_and_not_cut(service: RunningService) -> None:
    answer = complete(service, prompt="word " * 2000)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"


def test_what_ollama_has_no_word_for_is_refused_by_name(service: RunningService) -> None:
    answer = complete(service, logit_bias={"5": -100})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "logit_bias"


def test_the_copy_in_ollamas_store_is_not_listed_as_another_model(service: RunningService) -> None:
    complete(service, max_tokens=1)
    env = {"LOCALLLM_HOME": str(service.paths.data_dir.parent), "PATH": "/usr/bin:/bin"}
    listed = subprocess.run(
        [sys.executable, "-m", "localllm", "list"], env=env, capture_output=True, text=True, check=True
    ).stdout
    assert service.model in listed and "localllm/" not in listed
