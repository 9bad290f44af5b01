"""Lines of the chat screen: a chat in the list, a model to choose, and how to begin."""

from __future__ import annotations

from textual.content import Content

from localllm.core.control import ChatSummary, ModelSummary
from localllm.tui import figures
from localllm.tui.widgets.line import text


def summary_cells(chat: ChatSummary, now: float) -> dict[str, Content | str]:
    """Title (and what a search found in it), and how long ago it changed."""
    shown = f"{chat.title}  {chat.match}" if chat.match else chat.title
    return {"title": " ".join(shown.split()), "age": text((figures.ago(now - chat.updated_at), "$quiet"))}


def model_choice(model: ModelSummary) -> Content:
    """A model in a list to pick from; a loaded one answers at once."""
    mark = ("● ", "$success") if model.loaded else ("  ", "")
    return text(mark, model.name, (f"  {model.quant}" if model.quant else "", "$quiet"))


def welcome_lines(address: str | None, model: str | None, *, here: bool) -> Content:
    """How to begin, for a conversation in which nothing has been said."""
    if not here and address is not None:
        return text(
            ("No model is here yet.\n\n", "bold"),
            ("2", "bold $accent"),
            (" Models, then ", "$quiet"),
            ("a", "bold $accent"),
            (" adds a GGUF file, ", "$quiet"),
            ("g", "bold $accent"),
            (" gets one.\nIn a shell: ", "$quiet"),
            "localllm demo",
            (" brings a small one to try.", "$quiet"),
        )
    lines = [
        text(("Ask ", "bold"), (model or "anything", "bold $accent")),
        text(),
        text(
            ("^t", "bold $accent"),
            (" another model   ", "$quiet"),
            ("^o", "bold $accent"),
            (" system prompt, sampling", "$quiet"),
        ),
        text(
            ("esc ?", "bold $accent"),
            (" all keys   ", "$quiet"),
            ("^p", "bold $accent"),
            (" all commands", "$quiet"),
        ),
    ]
    if address is not None:
        lines += [text(), text(("OpenAI clients find the same models at ", "$quiet"), f"http://{address}/v1")]
    return Content("\n").join(lines)
