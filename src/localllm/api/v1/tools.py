"""Tools and tool_choice → the tools that may really be called, and whether one must be.

Engines know three choices: none, auto, required. A named choice is that one tool and ``required``; a list of allowed
tools is those tools. So "call this function" holds on every engine, also on those that would take it as a wish.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from localllm.api.v1.structured import loosened
from localllm.core.errors import BadRequest
from localllm.core.generation import Tool
from localllm.core.openai import AllowedTools, FunctionTool, NamedTool, ToolChoice

Choice = Literal["none", "auto", "required"]


def normalise_tools(
    wire: Sequence[FunctionTool] | None, choice: ToolChoice | None
) -> tuple[tuple[Tool, ...], Choice]:
    """The tools of a request and the choice among them; no tools at all is (), "none".

    Raises:
        BadRequest: two tools of one name, or a choice that names a tool that isn't there.
    """
    tools: dict[str, Tool] = {}
    for index, entry in enumerate(wire or ()):
        tool = _tool(entry)
        if tool.name in tools:
            raise BadRequest(
                f"There are two tools with the name {tool.name!r}.", param=f"tools[{index}].function.name"
            )
        tools[tool.name] = tool
    match choice:
        case NamedTool(function):
            return (_named(tools, function.name, "tool_choice.function.name"),), "required"
        case AllowedTools(allowed):
            chosen = tuple(
                _named(tools, entry.function.name, f"tool_choice.allowed_tools.tools[{index}].function.name")
                for index, entry in enumerate(allowed.tools)
            )
            return (chosen, allowed.mode) if chosen else ((), "none")
        case "required" if not tools:
            raise BadRequest("tool_choice is 'required', but there are no tools.", param="tool_choice")
        case None | "auto" | "none" | "required":
            return tuple(tools.values()), (choice or "auto") if tools else "none"


def _tool(entry: FunctionTool) -> Tool:
    function = entry.function
    return Tool(
        name=function.name,
        description=function.description or "",
        parameters=loosened(function.parameters or {"type": "object", "properties": {}}),
        strict=bool(function.strict),
    )


def _named(tools: dict[str, Tool], name: str, param: str) -> Tool:
    if name not in tools:
        known = ", ".join(tools) or "none"
        raise BadRequest(f"There is no tool with the name {name!r}; there are: {known}.", param=param)
    return tools[name]
