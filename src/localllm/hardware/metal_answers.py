"""A program that asks Metal for the memory it recommends a process to use at most, and prints it as JSON.

``python -m localllm.hardware.metal_answers``, on macOS only. Metal is reached through the Objective-C runtime with
ctypes, in a process of its own: a wrong guess about a future macOS then costs an answer and nothing else.
"""

from __future__ import annotations

import ctypes
import sys

import msgspec
from msgspec import Struct


class MetalAnswers(Struct, frozen=True):
    """``recommended_bytes`` is Metal's recommendedMaxWorkingSetSize, which follows ``iogpu.wired_limit_mb``."""

    recommended_bytes: int | None = None
    error: str | None = None


def ask_metal() -> MetalAnswers:
    """Ask the default GPU."""
    try:
        metal = ctypes.CDLL("/System/Library/Frameworks/Metal.framework/Metal")
        runtime = ctypes.CDLL("/usr/lib/libobjc.A.dylib")
    except OSError as error:
        return MetalAnswers(error=str(error))
    metal.MTLCreateSystemDefaultDevice.restype = ctypes.c_void_p
    runtime.sel_registerName.restype = ctypes.c_void_p
    runtime.sel_registerName.argtypes = [ctypes.c_char_p]
    device = metal.MTLCreateSystemDefaultDevice()
    if not device:
        return MetalAnswers(error="there is no Metal device")
    send = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p)(("objc_msgSend", runtime))
    selector = runtime.sel_registerName(b"recommendedMaxWorkingSetSize")
    return MetalAnswers(recommended_bytes=int(send(device, selector)))


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(ask_metal()))
