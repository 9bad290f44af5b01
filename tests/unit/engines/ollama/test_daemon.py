from __future__ import annotations

import pytest

from localllm.engines.ollama.daemon import base_url


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("box", "http://box:11434"),
        ("box:1234", "http://box:1234"),
        ("http://box", "http://box:80"),
        ("https://box/", "https://box:443"),
        ("[::1]", "http://[::1]:11434"),
        ("[::1]:99", "http://[::1]:99"),
        ("[::]:99", "http://127.0.0.1:99"),
    ],
)
def test_ollama_host_is_read_as_ollama_reads_it(value: str, url: str) -> None:
    assert base_url({"OLLAMA_HOST": value}) == url
