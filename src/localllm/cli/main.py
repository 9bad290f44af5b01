"""The command ``localllm``: which verbs there are, and what happens around every one of them.

A verb's module is imported when that verb is called and not before; the table below carries what the overview needs,
so ``localllm --version`` and ``localllm --help`` start nothing and import almost nothing.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import NamedTuple

import click

from localllm._version import __version__
from localllm.cli.session import Remote, remote_options


class Verb(NamedTuple):
    """``module`` in ``localllm.cli`` has a command called ``command``; ``help`` is its line in the overview."""

    module: str
    help: str
    command: str = "command"


VERBS: dict[str, dict[str, Verb]] = {
    "Talk to a model": {
        "run": Verb("run", "Send one prompt and print the answer"),
        "chat": Verb("chat", "Open the terminal app on a chat"),
        "demo": Verb("demo", "Try it: a small real model, ready in seconds"),
    },
    "Models": {
        "list": Verb("list_models", "What is in the store"),
        "show": Verb("show", "Everything known about one model"),
        "catalogue": Verb("catalogue", "Curated models, what each is good for"),
        "search": Verb("search", "Models that can be pulled"),
        "pull": Verb("pull", "Fetch a model into the store"),
        "downloads": Verb("downloads", "Pulls under way: pause, resume, cancel"),
        "import": Verb("import_model", "Take a GGUF file into the store"),
        "rm": Verb("rm", "Remove a model from the store"),
        "verify": Verb("verify", "Read models again: are they as they were stored?", "verify"),
        "dedupe": Verb("dedupe", "Files that are here more than once"),
        "gc": Verb("verify", "Delete what no model and no pull needs", "gc"),
        "export": Verb("bundle", "Copy a model's GGUF files out of the store", "export"),
        "bundle": Verb("bundle", "Write a model to one file, for a machine without a network", "bundle"),
        "unbundle": Verb("bundle", "Take a bundled model into the store", "unbundle"),
        "fit": Verb("fit", "Which quantisation fits this machine, and how fast"),
        "recommend": Verb("recommend", "Models that this machine should run"),
        "plan": Verb("plan", "How a model would be loaded, and what hardware it needs"),
        "eval": Verb("evaluate", "What a quantisation loses, measured on a text"),
    },
    "What is running": {
        "load": Verb("load", "Load a model into memory"),
        "unload": Verb("unload", "Take a model out of memory"),
        "alias": Verb("alias", "Names that stand for models: set, list, rollback, rm"),
        "route": Verb("route", "Which model an alias would send a text to, and why"),
        "ps": Verb("ps", "Models that are loaded and requests that run"),
    },
    "The service": {
        "start": Verb("service", "Start the service in the background", "start"),
        "stop": Verb("service", "Stop the service, after running requests are done", "stop"),
        "restart": Verb("service", "Stop and start the service", "restart"),
        "status": Verb("service", "Whether the service is up, and where", "status"),
        "serve": Verb("service", "Run the service in this terminal", "serve"),
        "logs": Verb("logs", "The service's log"),
        "keys": Verb("keys", "Named keys of the port, each with its own rules"),
        "gateway": Verb("gateway", "The port's policies, whether they are on, and what they did"),
        "audit": Verb("audit", "Check the audit log for tampering"),
    },
    "This machine and this installation": {
        "hw": Verb("hw", "Processors, memory and what is free"),
        "bench": Verb("bench", "Measure how fast a model runs here"),
        "tune": Verb("tune", "Find the fastest threads and batch sizes for a model"),
        "engine": Verb("engine", "Engines here, and the right build for this machine"),
        "doctor": Verb("doctor", "Check the installation and say what to do"),
        "config": Verb("config", "Show and change settings"),
        "completions": Verb("completions", "Print a shell completion script"),
        "reset-terminal": Verb("reset_terminal", "Mend a terminal that a killed app left behind"),
        "version": Verb("version", "The version of localllm and of its engines"),
    },
}


class LazyGroup(click.Group):
    """A group whose commands are the table above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for group in VERBS.values() for name in group]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for group in VERBS.values():
            if verb := group.get(cmd_name):
                command = getattr(import_module(f"localllm.cli.{verb.module}"), verb.command)
                if not isinstance(command, click.Command):
                    raise TypeError(f"localllm.cli.{verb.module}.{verb.command} is not a command")
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=2, cutoff=0.55)
            meant = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, group in VERBS.items():
            with formatter.section(title):
                formatter.write_dl([(name, verb.help) for name, verb in group.items()])


@click.command(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", message="localllm %(version)s")
@click.option(
    "--low-bandwidth/--full-bandwidth",
    default=None,
    help="Draw less often, without animation; by itself over SSH (ui.low_bandwidth).",
)
@remote_options
@click.pass_context
def cli(ctx: click.Context, remote: Remote, low_bandwidth: bool | None) -> None:
    """Run language models on your own machine.

    Without a command, localllm opens its terminal app. The service behind it starts by itself, goes on when the app is
    closed, and answers OpenAI clients on http://127.0.0.1:11500/v1.
    """
    ctx.obj = remote
    if ctx.invoked_subcommand is None:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            click.echo(ctx.get_help())
            return
        from localllm.cli.app import open_app

        ctx.exit(open_app(remote, low_bandwidth=low_bandwidth))


def main(args: list[str]) -> int:
    """Run one command line and return its exit code; nothing a command raises gets past here."""
    try:
        outcome = cli.main(args, prog_name="localllm", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader of our output has left (`localllm list | head -1`): nothing more to say, and nothing to flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the edge of the process
        return _explain(error, as_json="--json" in args)
    return outcome if isinstance(outcome, int) else 0


def _explain(error: BaseException, *, as_json: bool) -> int:
    """Say what went wrong; the exit code. What that needs is imported now, so that going right stays quick."""
    from localllm.cli import diagnostics
    from localllm.core.errors import LocalLLMError
    from localllm.settings.paths import resolve_paths

    if isinstance(error, LocalLLMError):
        return diagnostics.report(error, as_json=as_json)
    if isinstance(error, click.ClickException):
        return diagnostics.report_usage(error)
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return diagnostics.INTERRUPTED
    return diagnostics.report_unexpected(error, resolve_paths().log_dir / "cli.log")


def run() -> None:
    """The entry point."""
    sys.exit(main(sys.argv[1:]))
