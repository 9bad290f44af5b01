"""One localllm behind another: a model of the second machine is asked through the first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.running_service import RunningService, running_service

pytestmark = pytest.mark.real_model


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory, demo_model: Path) -> Iterator[RunningService]:
    with running_service(tmp_path_factory.mktemp("far"), demo_model) as service:
        yield service


@pytest.fixture(scope="module")
def near(
    far: RunningService, tmp_path_factory: pytest.TempPathFactory, demo_model: Path
) -> Iterator[RunningService]:
    home = tmp_path_factory.mktemp("near")
    (home / "config.toml").write_text(
        f'[remotes.far]\nbase_url = "{far.url}/v1"\n[remotes.off]\nbase_url = "http://127.0.0.1:9/v1"\n'
        'models = { big = "big" }\n'
    )
    with running_service(home, demo_model) as service:
        yield service


def ask(service: RunningService, model: str, **fields: object) -> httpx.Response:
    messages = [{"role": "user", "content": "Say hello."}]
    body = {"model": model, "messages": messages, "max_tokens": 8, "temperature": 0} | fields
    return httpx.post(f"{service.url}/v1/chat/completions", json=body, timeout=60)


def test_the_other_machines_model_answers_as_it_does_there(near: RunningService, far: RunningService) -> None:
    there, here = ask(far, far.model), ask(near, f"far/{far.model}")
    assert here.status_code == 200
    assert here.json()["choices"] == there.json()["choices"]
    assert here.json()["model"] == f"far/{far.model}"
    assert here.json()["usage"]["prompt_tokens"] == there.json()["usage"]["prompt_tokens"] > 0


def test_a_stream_comes_through(near: RunningService, far: RunningService) -> None:
    text = ask(near, f"far/{far.model}", stream=True).text
    assert text.rstrip().endswith("data: [DONE]")
    assert text.count('"content":"') > 2


def test_a_prompt_too_long_for_the_other_machine_is_refused_as_one(
    near: RunningService, far: RunningService
) -> None:
    long = [{"role": "user", "content": "word " * 40_000}]
    answer = ask(near, f"far/{far.model}", messages=long)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"


def test_a_machine_that_is_off_is_said_to_be(near: RunningService) -> None:
    answer = ask(near, "off/big")
    assert answer.status_code >= 500
    assert answer.json()["error"]["code"] == "engine_unavailable"
    listed = httpx.get(f"{near.url}/v1/models").json()["data"]
    assert "off/big" in [model["id"] for model in listed]


def test_an_alias_falls_back_and_says_who_answered(near: RunningService, far: RunningService) -> None:
    targets = {"shares": [{"model": "off/big"}], "fallback": [f"far/{far.model}"]}
    key = near.paths.admin_key_file.read_text().strip()
    put = httpx.put(
        f"{near.url}/localllm/aliases/gpt-4o", json=targets, headers={"Authorization": f"Bearer {key}"}
    )
    assert put.status_code == 200, put.text
    for stream in (False, True):
        answer = ask(near, "gpt-4o", stream=stream)
        assert answer.status_code == 200
        assert answer.headers["x-localllm-served-by"] == f"far/{far.model}"
        assert '"model":"gpt-4o"' in answer.text
    assert answer.text.rstrip().endswith("data: [DONE]")
