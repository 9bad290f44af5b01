from __future__ import annotations

from pathlib import Path

import pytest

from localllm.core.control import InstancePhase
from localllm.core.errors import EngineStalled
from localllm.service.notices import Notices
from localllm.service.watchdog import Watchdog, memory_pressure_percent, slept_s
from tests.support.scripted_engine import ScriptedInstance
from tests.unit.service.conftest import Parts


def test_the_kernels_figure_is_read(tmp_path: Path) -> None:
    psi = tmp_path / "memory"
    psi.write_text(
        "some avg10=1.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=12.34 avg60=0.00 avg300=0.00 total=1\n"
    )
    assert memory_pressure_percent(psi) == 12.34
    assert memory_pressure_percent(tmp_path / "none") is None
    assert slept_s() > -1


async def test_pressure_unloads_an_idle_model_and_says_so_until_it_is_over(parts: Parts) -> None:
    notices, pressure = Notices(), [50.0]
    dog = Watchdog(parts.manager, notices, pressure=lambda: pressure[0], slept=lambda: 0.0)
    await parts.ask("hi")
    await dog.look()
    assert parts.manager.loaded() == frozenset()
    assert "a was unloaded" in notices.all()[0].text

    pressure[0] = 0.0
    await dog.look()
    assert notices.all() == ()


async def test_after_a_sleep_an_engine_that_does_not_answer_is_ended(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep = [100.0]
    dog = Watchdog(parts.manager, Notices(), pressure=lambda: None, slept=lambda: asleep[0])
    await parts.ask("hi")

    async def hangs(self: ScriptedInstance) -> None:
        raise EngineStalled("No answer.")

    monkeypatch.setattr(ScriptedInstance, "ping", hangs)
    await dog.look()
    assert parts.manager.loaded() == {"a"}  # no sleep, and not time for a ping
    asleep[0] += 3600
    await dog.look()
    state = parts.manager.state("a")
    assert state is not None and state.phase is InstancePhase.CRASHED
    assert await parts.ask("hi")
