"""The branch of a chat that is shown: its turns, the chosen one, and the reply that grows at its end.

Turns bring Markdown with them, which takes longer to import than the first frame may take: they are imported when
there is a first turn to show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.reactive import var
from textual.widgets import Static

from localllm.core.control import ChatDetail, ChatMessage, ReplyEvent
from localllm.tui import branches
from localllm.tui.widgets.line import text

if TYPE_CHECKING:
    from localllm.tui.widgets.turn import Turn

# Turns laid out at once; older ones are a key away. A long chat must open as fast as a short one.
PAGE = 30


class Earlier(Static):
    """The line above the first turn when there are older ones; a click asks for them."""

    class Wanted(Message):
        """More of the past, please."""

    def __init__(self, hidden: int) -> None:
        words = text((f"↑ {hidden} earlier turns", "$quiet"), ("   p shows more", "$quiet"))
        super().__init__(words, classes="conversation--earlier", markup=False)

    def on_click(self) -> None:
        self.post_message(self.Wanted())


class Conversation(VerticalScroll):
    """`show` a chat, `grow` its reply; the chosen turn is ``chosen`` (a message id)."""

    DEFAULT_CSS = """
    Conversation { padding: 0 0 0 1; }
    Conversation > #turns { height: auto; min-height: 100%; }
    Conversation .conversation--earlier { padding: 0 1; margin-bottom: 1; height: 1; }
    Conversation .conversation--welcome { padding: 1 1; height: auto; }
    """

    chosen: var[str | None] = var(None)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._detail: ChatDetail | None = None
        self._turns: dict[str, Turn] = {}
        self._pages = 1
        self._welcome = Content()

    def compose(self) -> ComposeResult:
        # at least as high as the view: an anchored scroll would push a short conversation down otherwise
        yield Vertical(id="turns")

    @property
    def turns(self) -> list[Turn]:
        """The turns that are laid out, in order of speaking."""
        return list(self._turns.values())

    @property
    def chosen_turn(self) -> Turn | None:
        """The turn that commands speak of: the chosen one, else the last."""
        turns = self.turns
        return self._turns.get(self.chosen or "") or (turns[-1] if turns else None)

    async def show(self, detail: ChatDetail) -> None:
        """Lay out the branch that ``detail`` shows, keeping the turns that are there already."""
        changed = self._detail is None or self._detail.summary.id != detail.summary.id
        if changed:
            self._pages, self.chosen = 1, None
        self._detail = detail
        path = branches.shown(detail)
        shown = path[-PAGE * self._pages :]
        with self.app.batch_update():
            await self._reconcile(shown, hidden=len(path) - len(shown))
        for turn in self.turns:
            beside = [m.id for m in branches.siblings(detail, turn.message)]
            turn.place(beside.index(turn.message.id) + 1, len(beside))
        self._mark()
        if changed:
            self.anchor()
            self.scroll_end(animate=False)

    async def clear(self) -> None:
        """No chat is open."""
        self._detail = None
        await self._reconcile((), hidden=0)

    def welcome(self, words: Content) -> None:
        """What stands here while nothing has been said."""
        self._welcome = words
        for line in self.query(".conversation--welcome").results(Static):
            line.update(words)

    async def earlier(self) -> None:
        """Lay out one more page of older turns."""
        if self._detail is not None:
            self._pages += 1
            await self.show(self._detail)

    async def grow(self, message_id: str, event: ReplyEvent) -> None:
        """Give a reply's event to the turn it belongs to."""
        turn = self._turns.get(message_id)
        if turn is None:
            return
        if event.message is not None:
            await turn.show(event.message)
        else:
            await turn.take(event)

    def choose(self, step: int) -> None:
        """Move the choice by turns; the view follows."""
        turns = self.turns
        current = self.chosen_turn
        if current is None:
            return
        turn = turns[max(0, min(len(turns) - 1, turns.index(current) + step))]
        self.chosen = turn.message.id
        turn.scroll_visible(animate=False, top=True)

    def watch_chosen(self) -> None:
        self._mark()

    def _mark(self) -> None:
        for message_id, turn in self._turns.items():
            turn.set_class(message_id == self.chosen, "-chosen")

    async def _reconcile(self, messages: tuple[ChatMessage, ...], *, hidden: int) -> None:
        from localllm.tui.widgets.turn import Turn

        holder = self.query_one("#turns", Vertical)
        wanted = {m.id for m in messages}
        kept = {key: turn for key, turn in self._turns.items() if key in wanted}
        for child in list(holder.children):
            if child not in kept.values():
                await child.remove()
        self._turns = {}
        for index, message in enumerate(messages):
            turn = kept.get(message.id)
            if turn is None:
                turn = Turn(message)
                await holder.mount(turn, before=index if index < len(holder.children) else None)
            elif message.state != "streaming" or turn.message.state != "streaming":
                # a reply that grows is ahead of what was stored of it: only its stream may change it
                await turn.show(message)
            self._turns[message.id] = turn
        if hidden:
            await holder.mount(Earlier(hidden), before=0)
        if not messages:
            await holder.mount(Static(self._welcome, classes="conversation--welcome", markup=False))
