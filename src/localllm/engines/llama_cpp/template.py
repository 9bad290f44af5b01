"""Chat templates: Jinja from a stranger's file, rendered where it can do no harm.

A GGUF brings its own template. It runs sandboxed (no attribute tricks, no mutation), within a time and a size limit,
and without anything secret in reach. What a template cannot express is found out once, by rendering probes when it is
opened: a system role it would drop is merged into the first user turn, and tools it ignores are described in a system
message instead. Nothing the caller said is lost in silence.

No model, no tokens and no ctypes here.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NoReturn

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localllm.core.errors import BadTemplate, Unsupported
from localllm.core.generation import ChatPrompt, Message, TextPart, Tool

RENDER_SECONDS = 5.0
RENDER_CHARACTERS = 4 << 20
TEMPLATE_CHARACTERS = 1 << 20
REPEAT_LIMIT = 100_000

TemplateSource = Literal["file", "override", "fallback"]

FALLBACK_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
FALLBACK_STOP = ("<|im_end|>", "<|im_start|>")

_SENTINEL = "localllm_probe_7f3a"


@dataclass(frozen=True)
class Rendered:
    """``text`` is the whole prompt. ``opens_reasoning``: it ends inside a think block that the answer will close."""

    text: str
    opens_reasoning: bool


class ChatTemplate:
    """One opened template.

    ``supports_system`` and ``supports_tools`` say what it really renders; ``warnings`` what a person should know.
    """

    def __init__(
        self,
        text: str,
        *,
        source: TemplateSource = "file",
        bos_token: str = "",
        eos_token: str = "",
        now: Callable[[], datetime] = lambda: datetime.now().astimezone(),
        render_seconds: float = RENDER_SECONDS,
    ) -> None:
        """Compile and probe ``text``.

        Raises:
            BadTemplate: it is too long, is not Jinja, or cannot render the plainest conversation.
        """
        if len(text) > TEMPLATE_CHARACTERS:
            raise BadTemplate(
                f"The chat template has {len(text)} characters; the limit is {TEMPLATE_CHARACTERS}."
            )
        self.text = text
        self.source: TemplateSource = source
        self.stop: tuple[str, ...] = FALLBACK_STOP if source == "fallback" else ()
        self._render_seconds = render_seconds
        self._globals: dict[str, object] = {
            "bos_token": bos_token,
            "eos_token": eos_token,
            "raise_exception": _raise_exception,
            "strftime_now": lambda form: now().strftime(form),
        }
        try:
            self._template = _environment().from_string(text)
        except (jinja2.TemplateSyntaxError, RecursionError) as error:
            raise BadTemplate(f"The chat template is not valid Jinja: {error}") from error
        self.supports_system = True
        self.supports_tools = False
        self.warnings: tuple[str, ...] = ()
        self._probe()

    def render(self, prompt: ChatPrompt) -> Rendered:
        """Render a conversation to the text the model reads.

        Raises:
            BadTemplate: the template raised (its own message is kept), looped or wrote too much.
            Unsupported: the conversation holds images; this engine reads text only.
        """
        messages = [_message_fields(m) for m in prompt.messages]
        tools = list(prompt.tools) if prompt.tool_choice != "none" else []
        if tools and not self.supports_tools:
            messages = _describe_tools(messages, tools)
        if not self.supports_system:
            messages = _merge_system(messages)
        variables: dict[str, object] = {
            "messages": messages,
            "tools": [_tool_fields(t) for t in tools] if tools and self.supports_tools else None,
            "add_generation_prompt": not prompt.continue_final_message,
            **_reasoning_variables(prompt),
            **prompt.template_arguments,
        }
        text = self._render_calls(variables, messages)
        if prompt.continue_final_message:
            text = _cut_after_last(text, str(messages[-1]["content"]))
        return Rendered(text, opens_reasoning=text.rstrip().endswith("<think>"))

    def _render_calls(self, variables: Mapping[str, object], messages: list[dict[str, object]]) -> str:
        """Templates disagree whether a past call's arguments are an object or JSON text: object first, then text."""
        try:
            return self._render(variables)
        except BadTemplate:
            if not any("tool_calls" in m for m in messages):
                raise
            return self._render({**variables, "messages": [_arguments_as_text(m) for m in messages]})

    def _render(self, variables: Mapping[str, object]) -> str:
        pieces: list[str] = []
        length = 0
        try:
            with _deadline(self._render_seconds):
                for piece in self._template.generate({**self._globals, **variables}):
                    length += len(piece)
                    if length > RENDER_CHARACTERS:
                        raise BadTemplate(
                            f"The chat template wrote more than {RENDER_CHARACTERS} characters."
                        )
                    pieces.append(piece)
        except _TooSlow:
            raise BadTemplate(f"The chat template ran for more than {self._render_seconds:g} s.") from None
        except _TemplateRaised as error:
            raise BadTemplate(f"The chat template refused the messages: {error}", param="messages") from None
        except (
            jinja2.TemplateError,
            TypeError,
            ValueError,
            LookupError,
            AttributeError,
            ArithmeticError,
        ) as error:
            raise BadTemplate(f"The chat template failed: {error}", param="messages") from error
        except (RecursionError, MemoryError) as error:
            raise BadTemplate(f"The chat template used too much: {type(error).__name__}") from error
        return "".join(pieces)

    def _probe(self) -> None:
        user = {"role": "user", "content": "hello"}
        base: dict[str, object] = {"tools": None, "add_generation_prompt": True}
        self._render({**base, "messages": [user]})
        self.supports_system = self._shows(
            {**base, "messages": [{"role": "system", "content": _SENTINEL}, user]}
        )
        tool = _tool_fields(Tool(name=_SENTINEL, parameters={"type": "object", "properties": {}}))
        self.supports_tools = self._shows({**base, "messages": [user], "tools": [tool]})
        if not self.supports_system:
            self.warnings += (
                "The chat template has no system role; system text goes into the first user message.",
            )
        if not self.supports_tools:
            self.warnings += ("The chat template knows no tools; they are described in a system message.",)

    def _shows(self, variables: Mapping[str, object]) -> bool:
        try:
            return _SENTINEL in self._render(variables)
        except BadTemplate:
            return False


def open_template(
    file_template: str | None, override: str | None, *, bos_token: str, eos_token: str
) -> ChatTemplate:
    """The template to use: the override, else the file's, else a plain fallback; a broken one is said in ``warnings``."""
    problem = "The model brings no chat template"
    for text, source in ((override, "override"), (file_template, "file")):
        if not text:
            continue
        try:
            return ChatTemplate(
                text,
                source="override" if source == "override" else "file",
                bos_token=bos_token,
                eos_token=eos_token,
            )
        except BadTemplate as error:
            problem = error.message.rstrip(".")
    fallback = ChatTemplate(FALLBACK_TEMPLATE, source="fallback", bos_token=bos_token, eos_token=eos_token)
    fallback.warnings = (
        f"{problem}; the ChatML form is used, which this model may not know.",
        *fallback.warnings,
    )
    return fallback


# ---------------------------------------------------------------- the sandbox


class _TemplateRaised(jinja2.TemplateError):
    """The template called ``raise_exception``."""


class _TooSlow(BaseException):
    """Raised inside the rendering thread when its time is up; a BaseException, so no template construct swallows it."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """Immutable sandbox whose ``*`` and ``**`` cannot be used to fill the memory."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(
        self, context: jinja2.runtime.Context, operator: str, left: object, right: object
    ) -> object:
        if operator == "**" and not (_is_small(left) and _is_small(right)):
            raise jinja2.exceptions.SecurityError("** with large numbers")
        if operator == "*":
            for sequence, times in ((left, right), (right, left)):
                repeats = isinstance(sequence, str | list | tuple) and isinstance(times, int)
                if repeats and len(sequence) * times > REPEAT_LIMIT:  # type: ignore[arg-type,operator]
                    raise jinja2.exceptions.SecurityError("* that repeats too much")
        return super().call_binop(context, operator, left, right)


class _GenerationTag(Extension):
    """``{% generation %}…{% endgeneration %}`` marks the assistant's part for training; here its body is just shown."""

    tags = {"generation"}  # noqa: RUF012 - the base class says set

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> _Sandbox:
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, autoescape=False, extensions=[loopcontrols, _GenerationTag]
    )
    environment.filters["tojson"] = _to_json
    return environment


def _to_json(value: object, indent: int | None = None, ensure_ascii: bool = False, **_: object) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)


def _raise_exception(message: object) -> NoReturn:
    raise _TemplateRaised(str(message))


def _is_small(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) <= 64


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Raise ``_TooSlow`` in this thread when the body takes longer. Works on Python loops, which is what Jinja makes."""
    thread = threading.get_ident()
    lock = threading.Lock()
    over = False

    def interrupt() -> None:
        with lock:
            if not over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_TooSlow))

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            over = True
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)  # one that came too late
        timer.cancel()


# ---------------------------------------------------------------- what templates expect


def _message_fields(message: Message) -> dict[str, object]:
    fields: dict[str, object] = {"role": message.role, "content": _text_of(message)}
    if message.reasoning is not None:
        fields["reasoning_content"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": _decoded(c.arguments)}}
            for c in message.tool_calls
        ]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        fields["name"] = message.name
    return fields


def _text_of(message: Message) -> str:
    if isinstance(message.content, str):
        return message.content
    texts = []
    for part in message.content:
        if not isinstance(part, TextPart):
            raise Unsupported(
                "The llama_cpp engine reads text only; this message has an image.",
                param="messages",
                hint="Load the model with the llama_server engine for images.",
            )
        texts.append(part.text)
    return "\n".join(texts)


def _decoded(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _arguments_as_text(fields: dict[str, object]) -> dict[str, object]:
    calls = fields.get("tool_calls")
    if not isinstance(calls, list):
        return fields
    as_text = [
        {
            **c,
            "function": {
                **c["function"],
                "arguments": json.dumps(c["function"]["arguments"], ensure_ascii=False),
            },
        }
        for c in calls
    ]
    return {**fields, "tool_calls": as_text}


def _tool_fields(tool: Tool) -> dict[str, object]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
    }


def _reasoning_variables(prompt: ChatPrompt) -> dict[str, object]:
    """``enable_thinking`` is what Qwen, Granite and GLM templates read, ``reasoning_effort`` what gpt-oss reads."""
    if prompt.reasoning_effort is None:
        return {}
    thinking = prompt.reasoning_effort != "none"
    variables: dict[str, object] = {"enable_thinking": thinking, "thinking": thinking}
    if thinking:
        variables["reasoning_effort"] = (
            "low" if prompt.reasoning_effort == "minimal" else prompt.reasoning_effort
        )
    return variables


def _merge_system(messages: list[dict[str, object]]) -> list[dict[str, object]]:
    system = "\n\n".join(str(m["content"]) for m in messages if m["role"] == "system")
    rest = [m for m in messages if m["role"] != "system"]
    if not system:
        return rest
    for index, fields in enumerate(rest):
        if fields["role"] == "user":
            return [
                *rest[:index],
                {**fields, "content": f"{system}\n\n{fields['content']}"},
                *rest[index + 1 :],
            ]
    return [{"role": "user", "content": system}, *rest]


def _describe_tools(messages: list[dict[str, object]], tools: Sequence[Tool]) -> list[dict[str, object]]:
    """Tools for a template that knows none: told in the system message, calls and results as tagged JSON text."""
    listed = "\n".join(json.dumps(_tool_fields(t), ensure_ascii=False) for t in tools)
    told = (
        "You can call these functions:\n"
        f"{listed}\n"
        "To call one, answer only with\n"
        '<tool_call>\n{"name": "<function name>", "arguments": {<arguments as JSON>}}\n</tool_call>'
    )
    plain: list[dict[str, object]] = []
    for fields in messages:
        content = str(fields["content"])
        calls = fields.get("tool_calls")
        if isinstance(calls, list):
            written = "\n".join(
                f"<tool_call>\n{json.dumps(c['function'], ensure_ascii=False)}\n</tool_call>" for c in calls
            )
            plain.append({"role": "assistant", "content": f"{content}\n{written}".strip()})
        elif fields["role"] == "tool":
            plain.append({"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"})
        else:
            plain.append(fields)
    if plain and plain[0]["role"] == "system":
        return [{**plain[0], "content": f"{plain[0]['content']}\n\n{told}"}, *plain[1:]]
    return [{"role": "system", "content": told}, *plain]


def _cut_after_last(text: str, content: str) -> str:
    """Drop what the template wrote after the last message, so that the model goes on with that message."""
    end = text.rfind(content.strip())
    if not content.strip() or end < 0:
        raise BadTemplate(
            "The chat template does not show the last message as it is, so it cannot be continued."
        )
    return text[: end + len(content.strip())]
