"""Which catalogue counts: the one that localllm came with, or a later one that was fetched."""

from __future__ import annotations

import logging
from pathlib import Path

from localllm.core.errors import StoreCorrupt
from localllm.hardware.assets import asset_path
from localllm.hub.curated import Catalogue, read_catalogue

log = logging.getLogger(__name__)


def newest_catalogue(fetched: Path) -> Catalogue:
    """The one at ``fetched`` when it is later than the shipped one; a damaged one is logged and not used."""
    shipped = read_catalogue(asset_path("catalogue.json"))
    if not fetched.is_file():
        return shipped
    try:
        later = read_catalogue(fetched)
    except StoreCorrupt as error:
        log.warning("the fetched catalogue is not used", extra={"error": error.message})
        return shipped
    return later if later.revision > shipped.revision else shipped
