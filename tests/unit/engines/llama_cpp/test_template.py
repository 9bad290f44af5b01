"""Chat templates: what is rendered, what is refused, and that nothing said is lost."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from localllm.core.errors import BadTemplate, Unsupported
from localllm.core.generation import ChatPrompt, ImagePart, Message, TextPart, Tool, ToolCall
from localllm.engines.llama_cpp.template import FALLBACK_STOP, ChatTemplate, open_template

PLAIN = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"
WITH_TOOLS = "{% if tools %}{{ tools | tojson }}\n{% endif %}" + PLAIN
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    + PLAIN
)
USER = Message(role="user", content="hi")
TOOL = Tool(name="now", description="The time")


def chat(*messages: Message, **fields: object) -> ChatPrompt:
    return ChatPrompt(messages=messages, **fields)  # type: ignore[arg-type]


def test_a_conversation_is_rendered_with_its_generation_prompt() -> None:
    rendered = ChatTemplate(PLAIN).render(chat(Message(role="system", content="Be brief."), USER))
    assert rendered.text == "[system] Be brief.\n[user] hi\n[assistant] "
    assert not rendered.opens_reasoning


def test_text_parts_are_joined_and_images_refused() -> None:
    parts = Message(role="user", content=(TextPart("a"), TextPart("b")))
    assert "[user] a\nb\n" in ChatTemplate(PLAIN).render(chat(parts)).text
    with pytest.raises(Unsupported) as caught:
        ChatTemplate(PLAIN).render(chat(Message(role="user", content=(ImagePart(b"x", "image/png"),))))
    assert caught.value.param == "messages"


def test_a_template_without_a_system_role_gets_it_in_the_first_user_turn() -> None:
    template = ChatTemplate(NO_SYSTEM)
    assert not template.supports_system
    text = template.render(chat(Message(role="system", content="Be brief."), USER)).text
    assert text == "[user] Be brief.\n\nhi\n[assistant] "
    assert any("system role" in w for w in template.warnings)


def test_tools_go_to_a_template_that_knows_them() -> None:
    template = ChatTemplate(WITH_TOOLS)
    assert template.supports_tools
    text = template.render(chat(USER, tools=(TOOL,))).text
    assert text.startswith('[{"type": "function", "function": {"name": "now"')
    assert "now" not in template.render(chat(USER, tools=(TOOL,), tool_choice="none")).text


def test_tools_are_described_to_a_template_that_knows_none() -> None:
    call = Message(role="assistant", tool_calls=(ToolCall(id="c1", name="now", arguments="{}"),))
    result = Message(role="tool", content="noon", tool_call_id="c1")
    text = ChatTemplate(PLAIN).render(chat(USER, call, result, tools=(TOOL,))).text
    assert text.startswith("[system] You can call these functions:")
    assert '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>' in text
    assert "<tool_response>\nnoon\n</tool_response>" in text


def test_past_arguments_are_an_object_or_text_as_the_template_needs() -> None:
    call = Message(role="assistant", tool_calls=(ToolCall(id="c1", name="now", arguments='{"a": 1}'),))
    wants_object = (
        WITH_TOOLS
        + "{% for m in messages if m.tool_calls %}{{ m.tool_calls[0].function.arguments.a }}{% endfor %}"
    )
    assert ChatTemplate(wants_object).render(chat(USER, call, tools=(TOOL,))).text.endswith("1")
    wants_text = (
        WITH_TOOLS
        + "{% for m in messages if m.tool_calls %}{{ '' + m.tool_calls[0].function.arguments }}{% endfor %}"
    )
    assert ChatTemplate(wants_text).render(chat(USER, call, tools=(TOOL,))).text.endswith('{"a": 1}')


def test_an_open_think_block_is_told() -> None:
    template = ChatTemplate(PLAIN + "{% if add_generation_prompt %}<think>\n{% endif %}")
    assert template.render(chat(USER)).opens_reasoning


def test_reasoning_effort_reaches_the_variables_templates_read() -> None:
    template = ChatTemplate(PLAIN + "{{ enable_thinking }}/{{ reasoning_effort }}")
    assert template.render(chat(USER, reasoning_effort="minimal")).text.endswith("True/low")
    assert template.render(chat(USER, reasoning_effort="none")).text.endswith("False/")


def test_the_last_message_is_continued() -> None:
    template = ChatTemplate(PLAIN)
    text = template.render(
        chat(USER, Message(role="assistant", content="Once"), continue_final_message=True)
    ).text
    assert text == "[user] hi\n[assistant] Once"


def test_the_clock_and_the_end_token_are_the_templates() -> None:
    template = ChatTemplate(
        "{{ bos_token }}{{ strftime_now('%Y') }}{{ eos_token }}{{ messages[0].content }}",
        bos_token="<s>",
        eos_token="</s>",
        now=lambda: datetime(2031, 1, 1, tzinfo=UTC),
    )
    assert template.render(chat(USER)).text == "<s>2031</s>hi"


def test_generation_marks_and_loop_controls_are_understood() -> None:
    template = ChatTemplate(
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}"
    )
    assert template.render(chat(USER, USER)).text == "hi"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{% if", "not valid Jinja"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "unsafe"),
        ("{{ messages.append('x') }}", "unsafe"),
        ("{{ 'a' * 10000000 }}", "repeats too much"),
        ("{{ 10 ** 100000 }}", "large numbers"),
        ("{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}", "wrote more than"),
        ("{{ raise_exception('only in German') }}", "only in German"),
        ("{{ messages[3].content }}", "failed"),
        ("x" * (1 << 20) + "x", "limit"),
    ],
)
def test_a_bad_template_is_refused_in_words(text: str, says: str) -> None:
    with pytest.raises(BadTemplate, match=says):
        ChatTemplate(text)


def test_an_endless_template_is_stopped() -> None:
    loops = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    begun = time.monotonic()
    with pytest.raises(BadTemplate, match="ran for more than"):
        ChatTemplate(loops, render_seconds=0.2)
    assert time.monotonic() - begun < 5
    assert ChatTemplate(PLAIN, render_seconds=0.2).render(chat(USER)).text  # the thread is usable afterwards


def test_a_template_cannot_reach_the_file_system(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    with pytest.raises(BadTemplate):
        ChatTemplate(f"{{% include '/etc/passwd' %}}{{{{ open('{marker}', 'w') }}}}")
    assert not marker.exists()


def test_the_override_wins_and_a_broken_file_falls_back_with_a_warning() -> None:
    assert open_template(PLAIN, "{{ messages[0].content }}", bos_token="", eos_token="").source == "override"
    assert open_template(PLAIN, None, bos_token="", eos_token="").source == "file"
    broken = open_template("{% if", None, bos_token="", eos_token="")
    assert (broken.source, broken.stop) == ("fallback", FALLBACK_STOP)
    assert "not valid Jinja" in broken.warnings[0]
    assert "no chat template" in open_template(None, None, bos_token="", eos_token="").warnings[0]
