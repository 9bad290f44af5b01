"""The chat screen: the list of chats, the conversation, and the field to write in.

The service owns every chat and generates every reply; this screen shows, asks and follows. Leaving it, losing the
line or being killed stops nothing, and coming back shows a running reply where it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content

from localllm.core.control import ChatMessage, LoadRequest, ReplyEvent
from localllm.core.errors import LocalLLMError
from localllm.tui.actions import Scope, bindings
from localllm.tui.open_chat import OpenChat
from localllm.tui.pace import pump
from localllm.tui.screens.dialogs import Confirm, Picker, Prompt
from localllm.tui.screens.frame import FrameScreen
from localllm.tui.session import Session
from localllm.tui.state import AppState, Link
from localllm.tui.widgets.chat_lines import model_choice, summary_cells, welcome_lines
from localllm.tui.widgets.composer import Composer
from localllm.tui.widgets.conversation import Conversation
from localllm.tui.widgets.line import entitle, text
from localllm.tui.widgets.search_bar import SearchBar
from localllm.tui.widgets.table import Column, Row, Table

if TYPE_CHECKING:
    from localllm.tui.widgets.turn import Turn

_COLUMNS = (Column("title", "", 8, grow=True), Column("age", "", 3, right=True))


class ChatScreen(FrameScreen):
    scope = Scope.CHAT
    CSS_PATH = "chat.tcss"
    BINDINGS = bindings(Scope.CHAT)
    AUTO_FOCUS: ClassVar[str | None] = "Composer"

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.chat = OpenChat(session)
        self._editing: ChatMessage | None = None
        self._following: str | None = None
        self._revision: int | None = None
        self._link = Link.CONNECTING
        self._query = ""
        self._welcome: Content | None = None
        self._opened = False

    def body(self) -> ComposeResult:
        with Horizontal():
            with Vertical(id="chats", classes="pane") as pane:
                pane.border_title = Content("Chats")
                yield SearchBar("search all chats")
                yield Table(_COLUMNS, heading=False, empty="No chats yet.")
            with Vertical(id="talk"):
                yield Conversation(classes="pane")
                yield Composer()

    # ------------------------------------------------------------ facts

    def facts(self, state: AppState) -> None:
        self._label()
        back = state.link is Link.UP and self._link is not Link.UP
        self._link = state.link
        if state.service is None:
            return
        if back or state.service.chats_revision != self._revision:
            self._revision = state.service.chats_revision
            self.list_chats()
            if back and self.chat.id is not None:
                self.open_chat(self.chat.id)

    def _label(self) -> None:
        """Frame titles: what this chat is called, and which model would answer."""
        service = self.state.service
        model = self.chat.settings.model
        if model is None and self.state.instance is not None:
            model = self.state.instance.model
        entitle(
            self.query_one(Conversation),
            text((self.chat.title, "bold")),
            text((model or "no model", "$quiet")),
        )
        welcome = welcome_lines(self.state.address, model, here=bool(service and service.models))
        if self._welcome is None or not welcome.is_same(self._welcome):
            self._welcome = welcome
            self.query_one(Conversation).welcome(welcome)
        entitle(
            self.query_one(Composer),
            text(("editing: a new branch  esc cancels", "$warning")) if self._editing else text("Message"),
            text(("⏎", "$accent"), " send  ", ("^j", "$accent"), " newline"),
        )

    @work(exclusive=True, group="chats", exit_on_error=False)
    async def list_chats(self) -> None:
        """Read the list anew; the first time, open the newest chat."""
        found = await self.session.ask(lambda service: service.chats(self._query or None))
        if found is None:
            return
        now = self.session.clock()
        table = self.query_one(Table)
        table.show([Row(c.id, summary_cells(c, now)) for c in found.chats])
        if not self._opened:
            self._opened = True
            if found.chats:
                self.open_chat(found.chats[0].id)
            else:
                await self.query_one(Conversation).clear()

    # ------------------------------------------------------------ showing a chat

    @work(exclusive=True, group="open", exit_on_error=False)
    async def open_chat(self, chat_id: str) -> None:
        """Show a chat, and follow its reply if one is being written."""
        before = self.chat.id
        if not await self.chat.open(chat_id):
            return
        if before != chat_id:
            self._stop_editing()
            self._let_go()
        await self._show()

    async def _show(self) -> None:
        """Lay out the chat as it is now, and follow what is being written in it."""
        if self.chat.detail is None:
            return
        await self.query_one(Conversation).show(self.chat.detail)
        self.query_one(Table).highlight(self.chat.detail.summary.id)
        self._label()
        writing = self.chat.streaming
        if writing is not None and writing.id != self._following:
            self.follow_reply(self.chat.detail.summary.id, writing.id)

    def _let_go(self) -> None:
        """Follow no reply any more; the service goes on with it."""
        self.workers.cancel_group(self, "reply")
        self._following = None

    @work(exclusive=True, group="reply", exit_on_error=False)
    async def follow_reply(self, chat_id: str, message_id: str) -> None:
        """Draw a reply as it grows; afterwards read the chat once more for its figures."""
        conversation = self.query_one(Conversation)
        self._following = message_id

        async def show(event: ReplyEvent) -> None:
            if event.kind == "error" and event.message is None:
                return
            await conversation.grow(message_id, event)

        try:
            await pump(self.session.reply(chat_id, message_id), show, self.session.redraw_seconds)
        except LocalLLMError as error:
            # a lost line has its banner, and coming back opens the chat again
            if self.state.link is Link.UP:
                self.session.report(error)
        finally:
            if self._following == message_id:
                self._following = None
        if self.chat.id == chat_id:
            self.open_chat(chat_id)

    def on_table_highlighted(self, event: Table.Highlighted) -> None:
        if event.key != self.chat.id and event.table.has_pseudo_class("focus-within"):
            self.open_chat(event.key)

    def on_table_selected(self, event: Table.Selected) -> None:
        self.open_chat(event.key)
        self.query_one(Composer).focus()

    def on_search_bar_sought(self, event: SearchBar.Sought) -> None:
        self._query = event.words
        self.list_chats()

    def on_search_bar_left(self) -> None:
        self.query_one(Table).focus_list()

    # ------------------------------------------------------------ writing

    def on_composer_submitted(self, event: Composer.Submitted) -> None:
        parent = None if self._editing is None else (self._editing.parent_id or "")
        self._stop_editing()
        self.query_one(Composer).take()
        self.send(event.text, parent)

    @work(group="send", exit_on_error=False)
    async def send(self, words: str, parent_id: str | None) -> None:
        """Store the turn and follow the reply; what could not be sent goes back to the field."""
        if await self.chat.send(words, parent_id):
            self._to_the_end()
        elif not self.query_one(Composer).text:
            self.query_one(Composer).put(words)

    def _to_the_end(self) -> None:
        """Show the reply that has begun, at the end of the branch it is on."""
        conversation = self.query_one(Conversation)
        conversation.chosen = None
        conversation.anchor()
        if self.chat.id is not None:
            self.open_chat(self.chat.id)

    def action_send(self) -> None:
        composer = self.query_one(Composer)
        if composer.text.strip() and not composer.has_focus:
            self.on_composer_submitted(Composer.Submitted(composer.text))
        composer.focus()

    def action_newline(self) -> None:
        composer = self.query_one(Composer)
        composer.focus()
        composer.insert("\n")

    def action_compose(self) -> None:
        self.query_one(Composer).focus()

    def action_leave(self) -> None:
        if self._editing is not None:
            self._stop_editing()
            self.query_one(Composer).take()
        self.query_one(Conversation).focus()

    def _stop_editing(self) -> None:
        self._editing = None
        self._label()

    def action_edit(self) -> None:
        """Bring the chosen question back to the field; sending it makes a branch."""
        turn = self.query_one(Conversation).chosen_turn
        message = turn.message if turn else None
        if message is not None and message.role == "assistant":
            message = self.chat.message(message.parent_id)
        if message is None:
            return
        self._editing = message
        composer = self.query_one(Composer)
        composer.put(message.content)
        composer.focus()
        self._label()

    @work(exclusive=True, group="send", exit_on_error=False)
    async def action_regenerate(self) -> None:
        turn = self.query_one(Conversation).chosen_turn
        if turn is not None and await self.chat.regenerate(turn.message.id):
            self._to_the_end()

    @work(exclusive=True, group="stop", exit_on_error=False)
    async def action_stop(self) -> None:
        if self._following is not None:
            await self.chat.stop()

    # ------------------------------------------------------------ branches and turns

    @work(exclusive=True, group="open", exit_on_error=False)
    async def action_sibling(self, step: int) -> None:
        turn = self.query_one(Conversation).chosen_turn
        other = await self.chat.turn_to_sibling(turn.message, step) if turn else None
        if other is not None:
            await self._show()
            self.query_one(Conversation).chosen = other.id

    def action_choose(self, step: int) -> None:
        self.query_one(Conversation).choose(step)

    def on_turn_clicked(self, event: Turn.Clicked) -> None:
        self.query_one(Conversation).chosen = event.message_id

    def action_thoughts(self) -> None:
        turn = self.query_one(Conversation).chosen_turn
        if turn is not None:
            turn.toggle_thoughts()

    def action_copy_turn(self) -> None:
        turn = self.query_one(Conversation).chosen_turn
        if turn is not None:
            self.app.copy_to_clipboard(turn.message.content)
            self.notify("Copied the turn.", timeout=2)

    def action_copy_code(self) -> None:
        turn = self.query_one(Conversation).chosen_turn
        code = turn.code() if turn else None
        if code is None:
            self.notify("No code block in this turn.", severity="warning", timeout=3)
            return
        self.app.copy_to_clipboard(code)
        self.notify(f"Copied {code.count(chr(10)) + 1} lines of code.", timeout=2)

    async def action_earlier(self) -> None:
        await self.query_one(Conversation).earlier()

    async def on_earlier_wanted(self) -> None:
        await self.action_earlier()

    # ------------------------------------------------------------ the chat as a whole

    async def action_new_chat(self) -> None:
        self._let_go()
        self.chat.begin()
        self._stop_editing()
        await self.query_one(Conversation).clear()
        self.query_one(Composer).focus()

    @work(exclusive=True, group="settings", exit_on_error=False)
    async def action_switch_model(self) -> None:
        models = self.state.service.models if self.state.service else ()
        if not models:
            self.notify("There is no model here yet: import one on the Models screen.", severity="warning")
            return
        choices = [(m.name, model_choice(m)) for m in models]
        chosen = await self.app.push_screen_wait(Picker("Model", choices, current=self.chat.settings.model))
        if chosen is not None:
            await self.chat.choose_model(chosen)
            self._label()
            self.load(chosen)

    @work(exclusive=True, group="load", exit_on_error=False)
    async def load(self, model: str) -> None:
        """Load ahead of the next message; the strip shows how far it is."""
        await self.session.ask(lambda service: service.load(LoadRequest(model=model)))

    @work(exclusive=True, group="settings", exit_on_error=False)
    async def action_options(self) -> None:
        from localllm.tui.screens.chat_options import ChatOptions

        settings = await self.app.push_screen_wait(ChatOptions(self.chat.settings))
        if settings is not None:
            await self.chat.change(settings)
            self._label()

    @work(exclusive=True, group="settings", exit_on_error=False)
    async def action_rename(self) -> None:
        if self.chat.id is None:
            return
        title = await self.app.push_screen_wait(Prompt("Title", value=self.chat.title))
        if title:
            await self.chat.rename(title)
            self._label()

    @work(exclusive=True, group="settings", exit_on_error=False)
    async def action_delete_chat(self) -> None:
        if self.chat.id is None:
            return
        question = f"Delete “{self.chat.title}”?"
        sure = await self.app.push_screen_wait(
            Confirm(question, "All its branches go; this cannot be undone.", "delete")
        )
        if sure and await self.chat.delete():
            self._let_go()
            self._opened = False
            self.list_chats()

    @work(exclusive=True, group="settings", exit_on_error=False)
    async def action_export(self) -> None:
        document = await self.chat.export() if self.chat.id is not None else None
        if document is None:
            return
        name = "".join(c if c.isalnum() else "-" for c in self.chat.title).strip("-").lower()[:40]
        hint = "Where to write the chat; an existing file is left alone."
        path = await self.app.push_screen_wait(Prompt("Export", value=f"{name or 'chat'}.md", hint=hint))
        if path:
            self._write(path, document)

    @work(thread=True, group="export", exit_on_error=False)
    def _write(self, name: str, document: str) -> None:
        path = Path(name).expanduser()
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(document)
        except OSError as error:
            reason = error.strerror or "cannot be written"
            self.app.call_from_thread(self.notify, f"{path}: {reason}", severity="error", markup=False)
        else:
            self.app.call_from_thread(self.notify, f"Wrote {path}", markup=False)

    def action_toggle_list(self) -> None:
        self.toggle_class("-list")
        if self.has_class("-list"):
            self.query_one(Table).focus_list()
