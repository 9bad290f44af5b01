from __future__ import annotations

from typing import cast

import pytest

from localllm.cli.app import _begin_chat
from localllm.cli.main import main
from localllm.client.client import Client
from localllm.core.control import (
    ChatDetail,
    ChatList,
    ChatPatch,
    ChatSettings,
    ChatSummary,
    ModelDetail,
    ModelSummary,
)


class Service:
    """Knows one model and the chats it is given; remembers the ones it was asked to begin."""

    def __init__(self, *chats: ChatSummary) -> None:
        self.begun: list[ChatPatch] = []
        self._chats = chats

    async def model(self, name: str) -> ModelDetail:
        return ModelDetail(summary=ModelSummary(name=f"{name}:Q4_K_M", quant="Q4_K_M", size_bytes=1))

    async def chats(self) -> ChatList:
        return ChatList(self._chats)

    async def create_chat(self, patch: ChatPatch) -> ChatDetail:
        self.begun.append(patch)
        summary = ChatSummary(id="new", title="New chat", updated_at=0.0)
        return ChatDetail(summary=summary, settings=patch.settings or ChatSettings(), messages=())


def chat(model: str, messages: int) -> ChatSummary:
    return ChatSummary(id="c", title="t", updated_at=1.0, model=model, message_count=messages)


@pytest.mark.parametrize(
    ("newest", "begins"),
    [
        ((), True),
        ((chat("m:Q4_K_M", 2),), True),
        ((chat("other:Q8_0", 0),), True),
        ((chat("m:Q4_K_M", 0),), False),
    ],
)
async def test_a_chat_with_the_model_is_begun_unless_an_empty_one_waits(
    newest: tuple[ChatSummary, ...], begins: bool
) -> None:
    service = Service(*newest)
    await _begin_chat(cast(Client, service), "m")
    assert [patch.settings and patch.settings.model for patch in service.begun] == ["m:Q4_K_M"] * begins


def test_a_chat_needs_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat"]) == 2
    assert "localllm run MODEL PROMPT" in capsys.readouterr().err
