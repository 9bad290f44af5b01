from __future__ import annotations

import subprocess
import sys

import click
import pytest

from localllm._version import __version__
from localllm.cli.main import VERBS, cli, main

HEAVY = (
    "textual",
    "rich",
    "starlette",
    "uvicorn",
    "httpx",
    "tomlkit",
    "xllamacpp",
    "llama_cpp",
    "ollama",
    "psutil",
    "numpy",
    "jinja2",
)


def imported_by(*arguments: str) -> set[str]:
    """The top-level modules that one command line leaves in ``sys.modules``."""
    program = (
        "import sys; from localllm.cli.main import main; code = main(sys.argv[1:])\n"
        "print('\\n'.join(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)\n"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["--help"], *([name, "--help"] for group in VERBS.values() for name in group)],
    ids=" ".join,
)
def test_asking_for_help_imports_nothing_heavy(arguments: list[str]) -> None:
    assert imported_by(*arguments) & set(HEAVY) == set()


def test_the_version_is_told_by_click_alone() -> None:
    assert imported_by("--version") & {"asyncio", "msgspec", "difflib", "subprocess"} == set()


def test_showing_the_configuration_needs_no_service_and_no_tomlkit() -> None:
    assert imported_by("config", "show") & set(HEAVY) == set()


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"localllm {__version__}\n"


def test_every_verb_is_there_and_says_what_it_does() -> None:
    context = click.Context(cli)
    for group in VERBS.values():
        for name, verb in group.items():
            command = cli.get_command(context, name)
            assert command is not None
            assert command.help, name
            assert not verb.help.endswith("."), name


def test_without_a_terminal_the_overview_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    for group in VERBS.values():
        for name in group:
            assert f"  {name} " in out


@pytest.mark.parametrize(
    ("typed", "meant"), [("lst", "list"), ("sart", "start"), ("remove", None), ("improt", "import")]
)
def test_a_mistyped_command_gets_a_suggestion(
    typed: str, meant: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([typed]) == 2
    err = capsys.readouterr().err
    assert f"There is no command {typed!r}." in err
    assert meant is None or f"Did you mean {meant}" in err
    assert "Help: localllm --help" in err


@pytest.mark.parametrize("arguments", [["list", "--nonsense"], ["show"], ["load", "m", "--context", "lots"]])
def test_a_wrong_command_line_is_exit_2_and_shows_the_way_to_help(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"Help: localllm {arguments[0]} --help" in captured.err


def test_an_error_becomes_its_words_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "server.prot"]) == 2
    assert "Did you mean server.port?" in capsys.readouterr().err


def test_a_mistake_of_ours_is_caught_at_the_edge(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(cli, "main", broken)
    assert main(["list"]) == 70
    assert "Something went wrong inside localllm (RuntimeError)" in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_error() -> None:
    program = f"{sys.executable} -m localllm config show | head -1"
    done = subprocess.run(["sh", "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("setting")
    assert done.stderr == ""
