"""Messages as clients send them, made fit for any chat template."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from localllm.api.v1.images import image_from_url
from localllm.api.v1.messages import normalise_messages
from localllm.core.errors import BadRequest, Unsupported
from localllm.core.generation import ImagePart, Message, TextPart, ToolCall
from localllm.core.openai import WireMessage

PNG = b"\x89PNG\r\n\x1a\n-the-rest"
PNG_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()


def normalise(*messages: dict[str, Any]) -> tuple[Message, ...]:
    return normalise_messages([msgspec.convert(message, WireMessage) for message in messages])


def call(call_id: str, name: str = "f") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def test_system_and_developer_text_goes_to_the_front() -> None:
    assert normalise(
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "one"},
        {"role": "developer", "content": [{"type": "text", "text": "two"}]},
    ) == (Message(role="system", content="one\n\ntwo"), Message(role="user", content="hi"))


def test_neighbours_of_one_role_become_one_message() -> None:
    assert normalise(
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c", "reasoning": "r"},
        {"role": "assistant", "content": "d", "reasoning_content": "s"},
    ) == (
        Message(role="user", content="a\n\nb"),
        Message(role="assistant", content="c\n\nd", reasoning="r\n\ns"),
    )


def test_a_tool_round_trip_keeps_its_order_and_names() -> None:
    messages = normalise(
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call("1", "weather"), call("2", "clock")]},
        {"role": "tool", "tool_call_id": "2", "content": "noon"},
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "sun"}]},
        {"role": "assistant", "content": "It is sunny."},
        {"role": "assistant", "tool_calls": [call("3")]},
    )
    assert [message.role for message in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert messages[1].tool_calls == (ToolCall("1", "weather", "{}"), ToolCall("2", "clock", "{}"))
    assert [(message.name, message.content) for message in messages[2:4]] == [
        ("clock", "noon"),
        ("weather", "sun"),
    ]
    assert messages[4].content == "It is sunny."
    assert messages[4].tool_calls == (ToolCall("3", "f", "{}"),)


def test_images_stay_among_their_text() -> None:
    (message,) = normalise(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "text", "text": "here"},
                {"type": "image_url", "image_url": {"url": PNG_URL, "detail": "low"}},
                {"type": "text", "text": "well?"},
            ],
        }
    )
    assert message.content == (TextPart("look\nhere"), ImagePart(PNG, "image/png"), TextPart("well?"))


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": "", "tool_calls": [call("1")]}], "messages[0].tool_calls"),
        ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id"),
        ([{"role": "tool", "content": "x", "tool_call_id": "9"}], "messages[0].tool_call_id"),
        ([{"role": "assistant", "tool_calls": [call("1"), call("1")]}], "messages[0].tool_calls[1].id"),
        (
            [{"role": "assistant", "tool_calls": [call("1")]}, {"role": "tool", "tool_call_id": "1"}],
            "messages[1].content",
        ),
        (
            [{"role": "system", "content": [{"type": "image_url", "image_url": PNG_URL}]}],
            "messages[0].content",
        ),
    ],
)
def test_what_has_no_place_is_named(messages: list[dict[str, Any]], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        normalise(*messages)
    assert refused.value.param == param


def test_audio_is_refused_by_name() -> None:
    with pytest.raises(Unsupported) as refused:
        normalise({"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "input_audio"}]})
    assert refused.value.param == "messages[0].content[1].type"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/x.png",
        "https://example.com/x.png",
        "file:///etc/passwd",
        "data:text/html;base64,PGI+",
        "data:image/png,notbase64",
        "data:image/png;base64,@@@@",
        "data:image/png;base64," + base64.b64encode(b"<svg onload=x>").decode(),
        "",
    ],
)
def test_nothing_is_fetched_and_only_images_pass(url: str) -> None:
    with pytest.raises(BadRequest) as refused:
        image_from_url(url, "p")
    assert refused.value.param == "p"


def test_an_images_format_is_read_from_its_bytes() -> None:
    jpeg = "data:image/png;base64," + base64.b64encode(b"\xff\xd8\xff\xe0rest").decode()
    assert image_from_url(jpeg, "p").media_type == "image/jpeg"
