from __future__ import annotations

import json
from pathlib import Path

import pytest

from localllm.cli.diagnostics import (
    EXIT_CODES,
    EXIT_MEANINGS,
    INTERNAL,
    INTERRUPTED,
    SUCCESS,
    USAGE,
    exit_code,
    report,
    report_unexpected,
)
from localllm.core import errors
from localllm.core.errors import (
    AlreadyRunning,
    ConfigUnknownKey,
    DoesNotFit,
    LocalLLMError,
    ModelNotFound,
    ProbeFailed,
    UnknownArchitecture,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigUnknownKey("x"), 2),
        (AlreadyRunning("x"), 3),
        (ModelNotFound("x"), 4),
        (DoesNotFit("x"), 7),
        (UnknownArchitecture("x"), 9),
        (ProbeFailed("x"), 1),
        (LocalLLMError("x"), 1),
    ],
)
def test_the_nearest_class_decides_the_exit_code(error: LocalLLMError, code: int) -> None:
    assert exit_code(error) == code


def test_exit_codes_are_ones_a_shell_keeps() -> None:
    assert all(0 < code < 126 for code in EXIT_CODES.values())
    assert set(EXIT_CODES.values()) <= set(EXIT_MEANINGS)
    assert {SUCCESS, USAGE, INTERNAL, INTERRUPTED} == {0, 2, 70, 130}
    for cls in errors.all_errors().values():
        assert exit_code(cls.__new__(cls)) > 0


def test_an_error_is_message_hint_and_ways_out_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    error = DoesNotFit(
        "It needs 9 GiB.", hint="Try less.", details={"ways_out": ["context 32k → 8k frees 3 GiB"]}
    )
    assert report(error) == 7
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "Error: It needs 9 GiB.\nTry less.\n  - context 32k → 8k frees 3 GiB\n"


def test_ways_out_are_not_said_twice(capsys: pytest.CaptureFixture[str]) -> None:
    ways = ["Context 32k → 8k fits.", "q8_0 fits."]
    report(DoesNotFit("Too big.", hint=" ".join(ways), details={"ways_out": ways}))
    assert capsys.readouterr().err == "Error: Too big.\n  - Context 32k → 8k fits.\n  - q8_0 fits.\n"


def test_programs_get_the_error_as_json_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    report(ModelNotFound("gema", near=["gemma"]), as_json=True)
    captured = capsys.readouterr()
    envelope = json.loads(captured.out)
    assert envelope["kind"] == "error"
    assert envelope["data"]["code"] == "model_not_found"
    assert envelope["data"]["details"] == {"near": ["gemma"]}
    assert "Did you mean gemma?" in captured.err


def test_escapes_in_a_message_are_stripped(capsys: pytest.CaptureFixture[str]) -> None:
    report(LocalLLMError("bad \x1b[31mfile\x07"))
    assert capsys.readouterr().err == "Error: bad [31mfile\n"


def test_what_nobody_worded_is_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log" / "cli.log"
    try:
        raise KeyError("missing")
    except KeyError as error:
        assert report_unexpected(error, log) == INTERNAL
    assert "KeyError: 'missing'" in log.read_text()
    captured = capsys.readouterr().err
    assert "Something went wrong inside localllm (KeyError)" in captured
    assert str(log) in captured
    assert "Traceback" not in captured


def test_without_a_place_to_write_the_details_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert report_unexpected(ValueError("x"), tmp_path / "file" / "cli.log") == INTERNAL
    assert "ValueError: x" in capsys.readouterr().err
