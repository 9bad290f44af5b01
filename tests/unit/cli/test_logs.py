from __future__ import annotations

import pytest

from localllm.cli.main import main
from localllm.settings.paths import Paths


def test_the_log_can_be_read_when_the_service_is_down(
    paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    paths.log_dir.mkdir(parents=True)
    paths.service_log.write_text("".join(f'{{"n":{n}}}\n' for n in range(100)) + "evil \x1b[2J\n")
    assert main(["logs", "-n", "2"]) == 0
    captured = capsys.readouterr()
    assert captured.out == '{"n":99}\nevil [2J\n'
    assert "not running" in captured.err


def test_no_log_yet_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs"]) == 0
    assert capsys.readouterr().out == ""
