from __future__ import annotations

import pytest

from localllm.hardware.explain import explain, report
from localllm.hardware.simulate import simulate
from tests.support import machines

RTX_4090 = """\
tower · Linux

cpu  AMD Ryzen 9 7950X 16-Core Processor
  memory     49.9 GiB free of 62.5 GiB; 47.9 GiB to plan with, 2.0 GiB left alone
  details    16 cores, 32 threads
  isa        sse3 ssse3 sse4_2 avx f16c fma avx2 bmi2 avx512f avx512_vbmi avx512_vnni avx512_bf16

cuda0  NVIDIA GeForce RTX 4090
  memory     22.3 GiB free of 24.0 GiB; 21.7 GiB to plan with, 640.0 MiB left alone
  details    1008 GB/s · compute 8.9 · driver 550.144.03
  held by    ollama (pid 40112) 800.0 MiB
  held by    Xorg (pid 2412) 412.0 MiB
  held by    gnome-shell (pid 3120) 96.0 MiB
"""


def test_the_report_says_what_there_is_and_who_holds_it() -> None:
    assert report(machines.machine("rtx4090_desktop")) == RTX_4090


def test_the_explanation_names_every_source_and_marks_the_winner() -> None:
    lines = explain(machines.machine("container_cgroup_v2")).splitlines()
    start = lines.index("    memory free now")
    assert [line.split("  (")[0] for line in lines[start + 1 : start + 3]] == [
        "        available RAM          49.9 GiB",
        "      * cgroup /sys/fs/cgroup  6.5 GiB",
    ]
    assert lines[-2:] == ["Problems", "  none"]


def test_a_limit_is_shown_beside_what_the_machine_has() -> None:
    assert "6.5 GiB free of 8.0 GiB allowed (62.5 GiB in the machine)" in report(
        machines.machine("container_cgroup_v2")
    )


def test_problems_and_unknowns_are_not_hidden() -> None:
    text = report(machines.machine("nonsense_answers"))
    assert "free unknown: nothing is planned on it" in text
    assert "which is not believed" in text


def test_a_simulation_says_that_it_is_one() -> None:
    assert "simulated, nothing was measured" in report(simulate("RTX 4090"))


@pytest.mark.parametrize("name", machines.NAMES)
def test_every_machine_can_be_told(name: str) -> None:
    reading = machines.machine(name)
    text = explain(reading)
    for device in reading.devices:
        assert f"{device.id}  {device.name}" in text
        for entry in device.evidence:
            assert entry.source in text
    assert all(line == line.rstrip() for line in text.splitlines())
