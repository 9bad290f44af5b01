from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from localllm.core.units import GIB, MIB
from localllm.hardware.asking import LiveAsker, RawAnswers, ReplayAsker
from localllm.hardware.detect import detect
from localllm.hardware.found import Found, Scene
from localllm.hardware.memory import HostMemory
from localllm.hardware.nvidia import probe_nvidia
from localllm.hardware.nvml_answers import NvmlAnswers, NvmlDevice
from tests.support import machines


def cards(*devices: NvmlDevice, visible: str | None = None) -> Found:
    answers = RawAnswers(
        system="Linux",
        architecture="x86_64",
        hostname="h",
        names={"/proc/driver/nvidia": ["version"]},
        outputs={"nvml": msgspec.json.encode(NvmlAnswers(driver="570.1", devices=devices)).decode()},
        environment={} if visible is None else {"CUDA_VISIBLE_DEVICES": visible},
    )
    host = HostMemory(64 * GIB, 60 * GIB)
    return probe_nvidia(Scene(asker=ReplayAsker(answers), host=host, table=()))


def card(index: int = 0, name: str = "NVIDIA GeForce RTX 3090", **fields: object) -> NvmlDevice:
    known = {
        "index": index,
        "name": name,
        "uuid": f"GPU-{index}abc",
        "total_bytes": 24 * GIB,
        "free_bytes": 20 * GIB,
    }
    return msgspec.convert({**known, **fields}, NvmlDevice)


def test_bandwidth_comes_from_bus_width_and_memory_clock() -> None:
    (device,) = cards(card(bus_width_bits=384, max_memory_clock_mhz=9751)).devices
    assert device.bandwidth_gb_per_s == pytest.approx(936.1)


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        (None, ["GPU-0abc", "GPU-1abc", "GPU-2abc"]),
        ("1", ["GPU-1abc"]),
        ("2,0", ["GPU-2abc", "GPU-0abc"]),
        ("GPU-1", ["GPU-1abc"]),
        ("", []),
        ("-1", []),
        ("0,9,1", ["GPU-0abc"]),
    ],
)
def test_cuda_visible_devices_choose_and_order(chosen: str | None, found: list[str]) -> None:
    result = cards(card(0), card(1), card(2), visible=chosen)
    assert [device.address for device in result.devices] == found
    assert [device.id for device in result.devices] == [f"cuda{number}" for number in range(len(found))]
    assert bool(result.problems) == (len(found) < 3)


def test_a_card_that_hides_its_memory_does_not_get_the_hosts() -> None:
    result = cards(card(total_bytes=None, free_bytes=None, errors={"memory": "Not Supported"}))
    (device,) = result.devices
    assert (device.total_bytes, device.free_bytes, device.unified) == (None, None, False)
    assert "does not tell its memory (Not Supported)" in result.problems[0]


@pytest.mark.parametrize("name", ["NVIDIA GB10", "NVIDIA Thor", "Orin (nvgpu)"])
def test_chips_without_memory_of_their_own_share_the_hosts(name: str) -> None:
    (device,) = cards(
        card(name=name, total_bytes=None, free_bytes=None, errors={"memory": "Not Supported"})
    ).devices
    assert device.unified
    assert (device.total_bytes, device.free_bytes) == (64 * GIB, 60 * GIB)


def test_mig_is_said() -> None:
    (device,) = cards(card(mig_enabled=True)).devices
    assert any(entry.source == "NVML MIG mode" for entry in device.evidence)


def test_a_drawn_desktop_is_left_more_room() -> None:
    (plain,) = cards(card()).devices
    (drawing,) = cards(card(display_active=True)).devices
    assert (plain.margin_bytes, drawing.margin_bytes) == (384 * MIB, 640 * MIB)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"devices": 3}', '{"devices": [{"index": "x"}]}'])
def test_an_answer_that_is_no_answer_is_a_problem(text: str) -> None:
    raw = machines.answers("rtx4090_desktop")
    raw.outputs["nvml"] = text
    result = probe_nvidia(Scene(asker=ReplayAsker(raw), host=HostMemory(None, None), table=()))
    assert result.devices == ()
    assert "makes no sense" in result.problems[0]


def test_without_a_driver_nothing_is_started() -> None:
    class Forbidden(ReplayAsker):
        def output(self, name: str, argv: object) -> str | None:
            raise AssertionError("no program may be started")

    asker = Forbidden(machines.answers("epyc_vm"))
    assert probe_nvidia(Scene(asker=asker, host=HostMemory(None, None), table=())) == Found()


class StuckDriver(LiveAsker):
    """This machine, but with NVIDIA's driver."""

    def names(self, path: str) -> tuple[str, ...]:
        return ("version",) if path == "/proc/driver/nvidia" else super().names(path)


def test_a_driver_that_never_answers_is_left_behind_at_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    began = time.monotonic()
    result = probe_nvidia(Scene(asker=StuckDriver(deadline_s=1.0), host=HostMemory(None, None), table=()))
    assert time.monotonic() - began < 4
    assert result.devices == ()
    assert "NVML failed (no answer within" in result.problems[0]
    assert "dmesg" in result.problems[0]


def test_a_driver_that_takes_the_process_down_is_an_answer_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = probe_nvidia(Scene(asker=StuckDriver(deadline_s=20), host=HostMemory(None, None), table=()))
    assert "exit code -11" in result.problems[0]


def test_cards_are_numbered_by_their_pci_address() -> None:
    result = cards(card(0, pci_bus_id="00000000:81:00.0"), card(1, pci_bus_id="00000000:02:00.0"))
    assert [device.address for device in result.devices] == ["GPU-1abc", "GPU-0abc"]


def test_an_orin_that_nvml_names_vaguely_is_named_by_its_board() -> None:
    raw = machines.answers("jetson_agx_orin")
    raw.names["/proc/driver/nvidia"] = ["version"]
    raw.outputs["nvml"] = (
        '{"devices": [{"index": 0, "name": "Orin (nvgpu)", "errors": {"memory": "Not Supported"}}]}'
    )
    gpu = detect(raw=raw).gpus[0]
    assert gpu.unified
    assert gpu.bandwidth_gb_per_s == pytest.approx(204.8)
