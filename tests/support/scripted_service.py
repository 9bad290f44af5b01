"""The whole service on the scripted engine, as a process of its own: ``python -m tests.support.scripted_service``.

For tests that kill it, and for trying the app without a model. Settings come from the environment, as always.
A message with one of the words below is answered by what the word says, any other is echoed.
"""

from __future__ import annotations

import asyncio
import sys

from localllm.cli import diagnostics
from localllm.cli.binding import bind
from localllm.cli.serve import serve_on
from localllm.core.errors import LocalLLMError
from localllm.service.logs import logging_to
from localllm.settings.load import load_settings
from localllm.settings.paths import resolve_paths
from tests.support.fixed_planning import FixedPlanning
from tests.support.script import Crash, Flood, Hang, Reasoning, Text
from tests.support.scripted_engine import ScriptedEngine


def scripted_engine() -> ScriptedEngine:
    engine = ScriptedEngine()
    engine.when("CRASH", Text("half an"), Crash(exit_code=-9))
    engine.when("HANG", Text("a beginning"), Hang())
    engine.when("LONG", Flood(200_000))
    engine.when("THINK", Reasoning("let me see"), Text("the answer"))
    return engine


def main() -> int:
    paths = resolve_paths()
    try:
        loaded = load_settings(paths)
        server = loaded.settings.server
        with bind(server.host, server.port, paths) as listener, logging_to(paths.service_log, "info"):
            asyncio.run(
                serve_on(
                    listener,
                    paths,
                    loaded,
                    engines={"scripted": scripted_engine()},
                    planning=FixedPlanning(),
                )
            )
    except LocalLLMError as error:
        return diagnostics.report(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
