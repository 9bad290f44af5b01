from __future__ import annotations

from pathlib import Path

import pytest

from localllm.engines import exit_cause
from localllm.engines.exit_cause import count_oom_kills, explain_exit


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (-6, "abort"),
        (-11, "segmentation"),
        (-7, "bus error"),
        (-9, "kill -9"),
        (-4, "instruction"),
        (-63, "signal"),
        (0, "by itself"),
        (3, "exit code 3"),
        (127, "could not be started"),
        (0xC0000005, "access violation"),
        (None, "did not say"),
    ],
)
def test_every_code_has_a_sentence(code: int | None, word: str) -> None:
    sentence = explain_exit(code)
    assert word in sentence
    assert sentence.endswith((".", "?"))


def test_a_kill_while_the_kernel_counted_one_is_out_of_memory() -> None:
    assert "memory ran out" in explain_exit(-9, oom_killed=True)
    assert "memory ran out" not in explain_exit(-11, oom_killed=True)


def test_the_cgroups_own_count_comes_before_the_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tmp_path / "user.slice"
    group.mkdir()
    (tmp_path / "cgroup").write_text("0::/user.slice\n")
    (tmp_path / "vmstat").write_text("pgfault 1\noom_kill 7\n")
    monkeypatch.setattr(exit_cause, "_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(exit_cause, "_CGROUP_ROOT", tmp_path)
    monkeypatch.setattr(exit_cause, "_VMSTAT", tmp_path / "vmstat")
    assert count_oom_kills() == 7
    (group / "memory.events").write_text("max 3\noom 1\noom_kill 2\n")
    assert count_oom_kills() == 2
    (tmp_path / "cgroup").unlink()
    (tmp_path / "vmstat").unlink()
    assert count_oom_kills() == 0
