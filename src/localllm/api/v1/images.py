"""Images in a request: ``data:`` URLs only.

The port never fetches an address that a client names: it would let anyone who reaches the port make this machine
ask its own network (SSRF).
"""

from __future__ import annotations

import base64
import binascii
import re

from localllm.core.errors import BadRequest
from localllm.core.generation import ImagePart

_DATA_URL = re.compile(
    r"data:(?P<media_type>image/[a-z0-9.+-]{1,40})(?:;[a-z0-9=._-]+)*;base64,(?P<data>.*)",
    re.DOTALL | re.IGNORECASE,
)
# First bytes of the formats that llama.cpp's image reader (stb_image) knows, and WebP for engines that do.
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
    (b"RIFF", "image/webp"),
)


def image_from_url(url: str, param: str) -> ImagePart:
    """Decode a ``data:image/...;base64,`` URL; its real format is read from its bytes.

    Raises:
        BadRequest: another kind of URL, broken base64, or not an image we know; names ``param``.
    """
    found = _DATA_URL.fullmatch(url)
    if found is None:
        raise BadRequest(
            "Images must be sent inside the request, as data:image/...;base64 URLs; addresses are not fetched.",
            param=param,
        )
    try:
        data = base64.b64decode(found["data"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest("The image is not valid base64.", param=param) from error
    for magic, media_type in _MAGIC:
        if data.startswith(magic):
            return ImagePart(data=data, media_type=media_type)
    raise BadRequest("The image is not PNG, JPEG, GIF, BMP or WebP.", param=param)
