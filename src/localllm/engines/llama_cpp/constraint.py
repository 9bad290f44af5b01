"""Constraints on the answer, as llama.cpp grammars (GBNF): any JSON object, a JSON Schema, a forced tool call.

Grammars are checked before llama.cpp sees them: it recurses on nesting and expands repeats, and malformed ones have
aborted it. What passes the limits here still goes through ``grammar_probe`` (a process that may die) before it is used.
A constraint that cannot be expressed is an error for the caller, never ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import assert_never

from localllm.core.errors import BadGrammar
from localllm.core.generation import Constraint, Grammar, JsonObject, JsonSchema, Tool
from localllm.engines.llama_cpp.parsers import Family

GRAMMAR_BYTES = 64 << 10
NESTING = 64
REPEATS = 1_000

_ANY_OBJECT: dict[str, object] = {"type": "object"}
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|[A-Za-z][A-Za-z0-9-]*|\{[^}]*\}|.|\n', re.DOTALL)
_THOUGHT = 'thought ::= ([^<] | "<" [^/])* "</think>" [ \\n]*\n'


def to_gbnf(constraint: Constraint) -> str:
    """The grammar of a constraint, within the limits.

    Raises:
        BadGrammar: it is malformed, too large, too deep, or not expressible; ``param`` names the request's field.
    """
    match constraint:
        case JsonObject():
            gbnf = schema_to_gbnf(_ANY_OBJECT)
        case JsonSchema():
            gbnf = schema_to_gbnf(constraint.schema)
        case Grammar():
            gbnf = constraint.gbnf
        case _:
            assert_never(constraint)
    check_grammar(gbnf, param="grammar" if isinstance(constraint, Grammar) else "response_format")
    return gbnf


def schema_to_gbnf(schema: dict[str, object], *, param: str = "response_format") -> str:
    """A JSON Schema as GBNF, by llama-cpp-python's converter; references are resolved inside the schema only."""
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    if _depth(schema) > NESTING:
        raise BadGrammar(f"The JSON schema is nested deeper than {NESTING} levels.", param=param)
    try:
        gbnf = json_schema_to_gbnf(json.dumps(schema))
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError) as error:
        raise BadGrammar(f"The JSON schema cannot be turned into a grammar: {error}", param=param) from error
    return str(gbnf)


def check_grammar(gbnf: str, *, param: str = "grammar") -> None:
    """Hold a grammar to the limits that keep llama.cpp's parser alive.

    Raises:
        BadGrammar: longer than 64 KiB, nested deeper than 64, a repeat over 1,000, no ``root``, a NUL.
    """
    size = len(gbnf.encode("utf-8", "surrogatepass"))
    if size > GRAMMAR_BYTES:
        raise BadGrammar(f"The grammar has {size} bytes; the limit is {GRAMMAR_BYTES}.", param=param)
    if "\0" in gbnf or any("\ud800" <= char <= "\udfff" for char in gbnf):
        raise BadGrammar("The grammar holds a character that is no text.", param=param)
    if not re.search(r"^\s*root\s*::=", gbnf, re.MULTILINE):
        raise BadGrammar("The grammar has no rule named root.", param=param)
    depth = 0
    for match in _TOKEN.finditer(gbnf):
        token = match[0]
        if token == "(":
            depth += 1
            if depth > NESTING:
                raise BadGrammar(f"The grammar is nested deeper than {NESTING} levels.", param=param)
        elif token == ")":
            depth -= 1
        elif token.startswith("{"):
            _check_repeat(token, param)


def _check_repeat(token: str, param: str) -> None:
    """``{m,n}``: llama.cpp copies the item that often, and loops when n is less than m."""
    numbers = re.findall(r"\d+", token)
    if any(len(number) > 6 or int(number) > REPEATS for number in numbers):
        raise BadGrammar(f"The grammar repeats something more than {REPEATS} times.", param=param)
    if len(numbers) == 2 and int(numbers[0]) > int(numbers[1]):
        raise BadGrammar(f"The grammar's repeat {token} ends before it begins.", param=param)


def forced_call(
    family: Family, tools: Sequence[Tool], *, template: str, parallel: bool, opens_reasoning: bool
) -> str:
    """The grammar of an answer that is a call of one of ``tools`` (several when ``parallel``), as ``family`` writes it.

    ``template`` decides between a family's older and newer form. With ``opens_reasoning`` the answer first closes its
    thought. Gemma's own syntax is not JSON; a forced call takes the generic form there (parse it with
    ``Family.GENERIC``).
    """
    rules = [_tool_rules(index, tool) for index, tool in enumerate(tools)]
    names = [tool.name for tool in tools]
    calls, body, root = _form(family, names, template, parallel)
    thought = "thought " if opens_reasoning and family is not Family.HARMONY else ""
    grammar = f"root ::= {thought}{root}\n" + (_THOUGHT if thought else "")
    grammar += "call ::= " + " | ".join(f"call{i}" for i in range(len(names))) + "\n"
    grammar += "".join(f"call{i} ::= {form}\n" for i, form in enumerate(calls)) + body + "".join(rules)
    check_grammar(grammar, param="tools")
    return grammar


def _tool_rules(index: int, tool: Tool) -> str:
    gbnf = schema_to_gbnf(tool.parameters or _ANY_OBJECT, param="tools")
    return _prefixed(gbnf, f"t{index}-")


def _form(family: Family, names: Sequence[str], template: str, parallel: bool) -> tuple[list[str], str, str]:
    """Per family: the rule of each call, further rules, and the root around ``call``."""
    comma, newline = '", "', '"\\n"'

    def repeated(separator: str) -> str:
        return f"call ( {separator} call )*" if parallel else "call"

    as_json = [
        f'"{{\\"name\\": " {_literal(json.dumps(n))} ", \\"arguments\\": " t{i}-root "}}"'
        for i, n in enumerate(names)
    ]
    match family:
        case Family.LLAMA3:
            calls = [c.replace("arguments", "parameters") for c in as_json]
            return calls, "", repeated('"; "')
        case Family.MISTRAL if "[ARGS]" in template:
            calls = [f'"[TOOL_CALLS]" {_literal(n)} "[ARGS]" t{i}-root' for i, n in enumerate(names)]
            return calls, "", repeated("")
        case Family.MISTRAL:
            return as_json, "", f'"[TOOL_CALLS] [" {repeated(comma)} "]"'
        case Family.GRANITE:
            return as_json, "", f'"<|tool_call|>[" {repeated(comma)} "]"'
        case Family.DEEPSEEK:
            block = repeated(newline)
            return (
                _deepseek_calls(names, template),
                "",
                f'"<｜tool▁calls▁begin｜>" {block} "<｜tool▁calls▁end｜>"',
            )
        case Family.HARMONY:
            calls = [
                f'"<|channel|>commentary to=functions." {_literal(n)} " <|constrain|>json<|message|>" t{i}-root'
                for i, n in enumerate(names)
            ]
            thought = 'thought ::= "<|channel|>analysis<|message|>" [^<]* "<|end|><|start|>assistant"\n'
            return calls, thought, "thought? call"
        case Family.HERMES | Family.GENERIC | Family.GEMMA:
            calls = [f'"<tool_call>\\n" {c} "\\n</tool_call>"' for c in as_json]
            return calls, "", repeated(newline)
        case _:
            assert_never(family)


def _deepseek_calls(names: Sequence[str], template: str) -> list[str]:
    """R1 and V3 name the type first and fence the arguments; V3.1 writes the name and the bare arguments."""
    fenced = "```json" in template
    begin, separator, end = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
    if fenced:
        return [
            f'"{begin}function{separator}" {_literal(n)} "\\n```json\\n" t{i}-root "\\n```{end}"'
            for i, n in enumerate(names)
        ]
    return [f'"{begin}" {_literal(n)} "{separator}" t{i}-root "{end}"' for i, n in enumerate(names)]


def _literal(text: str) -> str:
    """``text`` as a GBNF string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _prefixed(gbnf: str, prefix: str) -> str:
    """The same grammar with every rule name prefixed, so that several can stand in one."""

    def rename(match: re.Match[str]) -> str:
        token = match[0]
        return f"{prefix}{token}" if token[0].isalpha() else token

    return _TOKEN.sub(rename, gbnf).rstrip("\n") + "\n"


def _depth(value: object) -> int:
    """How deep a JSON value is nested, without recursion."""
    deepest, pending = 0, [(value, 1)]
    while pending:
        item, level = pending.pop()
        deepest = max(deepest, level)
        if deepest > NESTING:
            break
        if isinstance(item, dict):
            pending.extend((child, level + 1) for child in item.values())
        elif isinstance(item, list):
            pending.extend((child, level + 1) for child in item)
    return deepest
