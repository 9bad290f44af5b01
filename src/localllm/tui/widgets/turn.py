"""One turn of a conversation: the question as it was typed, or the answer with its thoughts and its figures.

The answer's Markdown is streamed; thoughts are folded to one line with the time they took.
"""

from __future__ import annotations

import re

import msgspec
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Markdown, Static
from textual.widgets.markdown import MarkdownStream

from localllm.core.control import ChatMessage, ReplyEvent
from localllm.tui import figures
from localllm.tui.markdown_parts import split_markdown
from localllm.tui.widgets.line import Part, text

# What a terminal can lay out in reasonable time; the whole message is in the chat's export.
SHOWN_CHARACTERS = 60_000
_FENCE = re.compile(r"^(`{3,}|~{3,})[^\n]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)


class Turn(Vertical):
    """Shows a `ChatMessage`; grows by `take` while it streams. A click chooses it."""

    DEFAULT_CSS = """
    Turn { height: auto; padding: 0 1 0 0; margin-bottom: 1; border-left: outer $background; }
    Turn > Static { height: auto; padding: 0 0 0 1; }
    Turn.-user { border-left: outer $accent 60%; }
    Turn.-user > .turn--body { color: $foreground; text-style: bold; }
    Turn.-chosen { border-left: outer $accent; }
    Turn.-chosen.-user { background: $select; }
    Turn > .turn--thoughts { color: $thought; }
    Turn > .turn--reasoning { color: $quiet; display: none; padding: 0 0 0 3; }
    Turn.-open > .turn--reasoning { display: block; }
    Turn > .turn--parts { height: auto; }
    Turn Markdown { padding: 0 0 0 1; margin: 0 0 1 0; }
    Turn Markdown:last-child { margin: 0; }
    Turn > .turn--figures { color: $quiet; }
    """

    class Clicked(Message):
        def __init__(self, message_id: str) -> None:
            super().__init__()
            self.message_id = message_id

    def __init__(self, message: ChatMessage, *, place: tuple[int, int] = (1, 1)) -> None:
        super().__init__(classes=f"-{message.role}")
        self.message = message
        self._place = place
        self._parts: list[str] = []
        self._markdown: list[Markdown] = []
        self._stream: MarkdownStream | None = None
        self._status: str | None = None

    def compose(self) -> ComposeResult:
        if self.message.role == "user":
            yield Static(_clip(self.message.content), classes="turn--body", markup=False)
        else:
            yield Static(classes="turn--thoughts", markup=False)
            yield Static(classes="turn--reasoning", markup=False)
            with Vertical(classes="turn--parts"):
                self._parts = split_markdown(_clip(self.message.content))
                self._markdown = [Markdown(part, open_links=False) for part in self._parts]
                yield from self._markdown
        yield Static(classes="turn--figures", markup=False)

    def on_mount(self) -> None:
        self._draw()

    def on_click(self) -> None:
        self.post_message(self.Clicked(self.message.id))

    def place(self, index: int, count: int) -> None:
        """Which of how many siblings this is, counted from 1."""
        if (index, count) != self._place:
            self._place = (index, count)
            self._draw()

    def toggle_thoughts(self) -> None:
        """Unfold or fold the reasoning."""
        self.toggle_class("-open")
        self._draw()

    def code(self) -> str | None:
        """The last fenced code block, without its fences."""
        blocks = _FENCE.findall(self.message.content)
        return blocks[-1][1].rstrip("\n") if blocks else None

    async def show(self, message: ChatMessage) -> None:
        """Take the message as it is now; text that only grew is appended."""
        before, self.message = self.message, message
        if message.role == "assistant" and message.content != before.content:
            await self._write()
        if message.state != "streaming":
            await self._end_stream()
        self._draw()

    async def take(self, event: ReplyEvent) -> None:
        """Grow by a delta, or show what the service says about the wait."""
        if event.kind == "status":
            self._status = event.status
        else:
            before = self.message
            self._status = None
            self.message = msgspec.structs.replace(
                before,
                content=before.content + (event.text or ""),
                reasoning=(before.reasoning or "") + event.reasoning if event.reasoning else before.reasoning,
            )
            if event.text:
                await self._write()
        self._draw()

    async def on_unmount(self) -> None:
        await self._end_stream()

    async def _write(self) -> None:
        """Bring the Markdown to what the message says now; parts that are final are left alone."""
        parts = split_markdown(_clip(self.message.content))
        for index, part in enumerate(parts):
            if index >= len(self._markdown):
                await self._end_stream()
                self._markdown.append(Markdown(part, open_links=False))
                await self.query_one(".turn--parts", Vertical).mount(self._markdown[-1])
            elif part != self._parts[index]:
                last = index == len(self._markdown) - 1
                await self._grow(self._markdown[index], self._parts[index], part, last=last)
        for extra in self._markdown[len(parts) :]:
            await extra.remove()
        del self._markdown[len(parts) :]
        self._parts = parts

    async def _grow(self, markdown: Markdown, before: str, now: str, *, last: bool) -> None:
        if not (last and before and now.startswith(before)):
            await self._end_stream()
            await markdown.update(now)
            return
        if self._stream is None:
            self._stream = Markdown.get_stream(markdown)
        await self._stream.write(now[len(before) :])

    async def _end_stream(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            await stream.stop()

    def _draw(self) -> None:
        if not self.children:
            return
        if self.message.role == "user":
            self._put(".turn--figures", text((self._branch(), "$quiet")))
            return
        self._draw_thoughts()
        self._put(".turn--figures", self._foot())

    def _put(self, selector: str, content: Content) -> None:
        """Show a line of this turn, hidden when empty. Only a change is laid out: a reply grows ten times a second."""
        line = self.query_one(selector, Static)
        if isinstance(line.content, Content) and line.content.is_same(content):
            return
        line.display = bool(content.plain)
        line.update(content)

    def _draw_thoughts(self) -> None:
        reasoning = self.message.reasoning
        if not reasoning:
            self._put(".turn--thoughts", text())
            return
        fold = "▾" if self.has_class("-open") else "▸"
        took = self.message.reasoning_ms
        if took is not None:
            words = f"Thought for {figures.lasting(took / 1000)}"
        elif self.message.state == "streaming" and not self.message.content:
            words = f"Thinking… {len(reasoning.split())} words"
        else:
            words = "Thoughts"
        self._put(".turn--thoughts", text((f"{fold} {words}", "$thought")))
        if self.has_class("-open"):
            self.query_one(".turn--reasoning", Static).update(Content(_clip(reasoning.strip())))

    def _branch(self) -> str:
        index, count = self._place
        return f"◂{index}/{count}▸" if count > 1 else ""

    def _foot(self) -> Content:
        message = self.message
        branch = self._branch()
        parts: list[Part] = [(branch, "$accent")] if branch else []
        if message.state == "streaming":
            parts.append((self._status or ("writing…" if message.content else "waiting…"), "$warning"))
        elif message.state == "failed":
            parts.append((f"✗ {message.error or 'failed'}", "$error"))
        elif message.state == "partial":
            parts.append((f"■ cut short{': ' + message.error if message.error else ''}", "$warning"))
        elif message.finish_reason == "length":
            parts.append(("■ reached the token limit", "$warning"))
        if len(message.content) > SHOWN_CHARACTERS:
            parts.append((f"first {SHOWN_CHARACTERS:,} characters; x exports all", "$warning"))
        parts += [(figure, "$quiet") for figure in _figures(message)]
        return text(("  ", "")).join([p if isinstance(p, Content) else text(p) for p in parts])


def _figures(message: ChatMessage) -> list[str]:
    """The reply's figures in words, those that are known."""
    out = []
    if message.tokens_per_second is not None:
        out.append(f"{figures.speed(message.tokens_per_second)} tok/s")
    if message.ttft_ms is not None:
        out.append(f"TTFT {figures.milliseconds(message.ttft_ms)}")
    if message.completion_tokens is not None:
        out.append(f"{figures.tokens(message.completion_tokens)} tok")
    if message.cached_tokens:
        out.append(f"{figures.tokens(message.cached_tokens)} cached")
    return ["  ".join(out)] if out else []


def _clip(words: str) -> str:
    return words if len(words) <= SHOWN_CHARACTERS else words[:SHOWN_CHARACTERS]
