from __future__ import annotations

from types import SimpleNamespace

import pytest

from localllm.core.machine import Device, DeviceKind
from localllm.hardware.gauges import nvidia
from localllm.hardware.gauges.nvidia import NvidiaGauge, throttle_words

CARD = Device(
    id="cuda0",
    kind=DeviceKind.GPU,
    name="card",
    vendor="NVIDIA",
    address="GPU-1",
    total_bytes=100,
    free_bytes=60,
    margin_bytes=0,
)


class NvmlError(Exception):
    pass


class FakeNvml:
    """pynvml as far as the gauge asks; ``refused`` calls are not supported."""

    NVMLError = NvmlError
    NVML_TEMPERATURE_GPU = 0
    NVML_CLOCK_SM = 1

    def __init__(self, *, refused: tuple[str, ...] = ()) -> None:
        self.refused = refused
        self.calls: list[str] = []
        self.answers: dict[str, object] = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlDeviceGetHandleByUUID": "handle",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=100, used=40),
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=93),
            "nvmlDeviceGetPowerUsage": 287_600,
            "nvmlDeviceGetTemperature": 71,
            "nvmlDeviceGetClockInfo": 2520,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x24,
        }

    def __getattr__(self, name: str) -> object:
        answer = self.answers[name]

        def call(*arguments: object) -> object:
            self.calls.append(name)
            if name in self.refused:
                raise NvmlError("Not Supported")
            return answer

        return call


def test_a_card_under_load(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml()
    monkeypatch.setattr(nvidia, "pynvml", fake)
    gauge = NvidiaGauge(CARD)
    sample = gauge.read()
    assert (sample.memory_total_bytes, sample.memory_used_bytes) == (100, 40)
    assert (sample.utilisation_percent, sample.temperature_celsius) == (93, 71)
    assert (sample.power_watts, sample.clock_mhz) == (287.6, 2520)
    assert sample.throttled == "power limit, temperature"
    gauge.read()
    gauge.close()
    assert (fake.calls.count("nvmlInit"), fake.calls.count("nvmlShutdown")) == (1, 1)


def test_what_a_card_does_not_support_is_unknown_and_the_rest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = (
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
    )
    monkeypatch.setattr(nvidia, "pynvml", FakeNvml(refused=refused))
    sample = NvidiaGauge(CARD).read()
    assert (sample.power_watts, sample.memory_used_bytes, sample.throttled) == (None, None, None)
    assert sample.utilisation_percent == 93


def test_a_driver_that_does_not_start_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml(refused=("nvmlInit",))
    monkeypatch.setattr(nvidia, "pynvml", fake)
    gauge = NvidiaGauge(CARD)
    with pytest.raises(OSError, match="Not Supported"):
        gauge.read()
    fake.refused = ()
    assert gauge.read().utilisation_percent == 93


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (0, ""),
        (0x1, ""),
        (0x4, "power limit"),
        (0x60, "temperature"),
        (0x88, "hardware slowdown, power brake"),
    ],
)
def test_idle_is_not_throttled(reasons: int, words: str) -> None:
    assert throttle_words(reasons) == words
