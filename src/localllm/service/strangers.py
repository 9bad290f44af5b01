"""What Ollama holds for others, as the ledger counts it: by device, so that our loads leave it alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from localllm.core.machine import Device, DeviceKind
from localllm.engines.ollama.wire import Resident


class OllamaStrangers:
    """``ask`` gives Ollama's models that are not ours."""

    def __init__(self, ask: Callable[[], Awaitable[Sequence[Resident]]]) -> None:
        self._ask = ask

    async def __call__(self, devices: Sequence[Device]) -> dict[str, int]:
        """Bytes by device. Ollama does not say which GPU, so its part there counts on the largest one."""
        residents = await self._ask()
        gpus = [device for device in devices if device.kind is not DeviceKind.CPU]
        gpu = max(gpus, key=lambda device: device.total_bytes or 0, default=None)
        on_gpu = sum(max(0, model.size_vram) for model in residents) if gpu is not None else 0
        on_host = sum(max(0, model.size) for model in residents) - on_gpu
        if gpu is not None and gpu.unified:
            on_host += on_gpu  # what such a GPU holds, it took from the host
        found = {device.id: max(0, on_host) for device in devices if device.kind is DeviceKind.CPU}
        return found | ({gpu.id: on_gpu} if gpu is not None else {})
