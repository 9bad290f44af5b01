from __future__ import annotations

import ast
import shlex

import pytest

from localllm.tui.snippets import Snippet, snippets

URL = "http://127.0.0.1:11500/v1"


def named(title: str, *, needs_key: bool = False) -> Snippet:
    return next(s for s in snippets(URL, "qwen3-8b", needs_key=needs_key) if s.title == title)


@pytest.mark.parametrize("needs_key", [False, True])
def test_each_names_the_address_and_the_model(needs_key: bool) -> None:
    for snippet in snippets(URL, "qwen3-8b", needs_key=needs_key):
        assert URL in snippet.text
        assert "qwen3-8b" in snippet.text
        if snippet.title != "llm":  # that tool keeps its keys itself
            assert ("LOCALLLM_API_KEY" in snippet.text) == needs_key


@pytest.mark.parametrize("needs_key", [False, True])
def test_the_python_one_parses(needs_key: bool) -> None:
    ast.parse(named("python", needs_key=needs_key).text)


def test_the_curl_one_is_one_command() -> None:
    words = shlex.split(named("curl", needs_key=True).text.replace("\\\n", ""))
    assert words[:2] == ["curl", f"{URL}/chat/completions"]
    assert words.count("-H") == 2
