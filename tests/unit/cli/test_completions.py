from __future__ import annotations

import os
import subprocess
import sys

import pytest

from localllm.cli.main import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completions", shell]) == 0
    assert "_LOCALLLM_COMPLETE" in capsys.readouterr().out


def test_the_shell_one_is_in_is_the_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert main(["completions"]) == 0
    assert "fish" in capsys.readouterr().out
    monkeypatch.setenv("SHELL", "/bin/csh")
    assert main(["completions"]) == 2
    assert "No completions for 'csh'" in capsys.readouterr().err


def test_a_tab_completes_verbs_and_options() -> None:
    def press_tab(words: str, index: int) -> str:
        env = {
            **os.environ,
            "_LOCALLLM_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(index),
        }
        done = subprocess.run(
            [sys.executable, "-m", "localllm"],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout

    assert "plain,config" in press_tab("localllm con", 1)
    assert "plain,--context" in press_tab("localllm load --co", 2)
