"""What a vision projector (mmproj) adds to a load: its weights, and the scratch memory of encoding one image.

The encoder is a transformer over image patches that runs beside the language model, on the same device. Its largest
stage is the attention over all patches or the feed-forward, whichever is wider (llama.cpp's tools/mtmd/clip.cpp).
"""

from __future__ import annotations

from typing import Final

from localllm.core.errors import GGUFError
from localllm.core.gguf import GGUFHeader

_F32: Final = 4
_LARGEST_IMAGE: Final = 4_096


def projector_bytes(header: GGUFHeader) -> int:
    """Bytes that a projector takes on the device of the output layer.

    Raises:
        GGUFError: the file is no projector, or a figure in it is impossible.
    """
    if header.metadata.get("general.architecture") != "clip":
        raise GGUFError("The file is not a vision projector (general.architecture is not clip).")
    return sum(tensor.size_bytes for tensor in header.tensors) + _encoder_bytes(header)


def _encoder_bytes(header: GGUFHeader) -> int:
    image, patch = _figure(header, "image_size", 336, _LARGEST_IMAGE), _figure(header, "patch_size", 14, 256)
    width = _figure(header, "embedding_length", 1_024, 1 << 16)
    inner = _figure(header, "feed_forward_length", 4 * width, 1 << 18)
    heads = _figure(header, "attention.head_count", 16, 1_024)
    patches = max(1, image // patch) ** 2
    stream = patches * width * _F32
    attention = 4 * stream + patches * patches * heads * _F32
    feed_forward = 3 * stream + 2 * patches * inner * _F32
    return max(attention, feed_forward)


def _figure(header: GGUFHeader, name: str, default: int, largest: int) -> int:
    value = header.metadata.get(f"clip.vision.{name}", default)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
        raise GGUFError(f"clip.vision.{name} is {value!r:.40}; between 1 and {largest} is believable.")
    return value
