from __future__ import annotations

import hashlib
import os

from localllm.hub.download.digest import STEP_BYTES, PrefixDigest

CONTENT = os.urandom(STEP_BYTES + 1000)


def read(offset: int, length: int) -> bytes:
    return CONTENT[offset : offset + length]


def test_the_prefix_is_hashed_in_steps() -> None:
    digest = PrefixDigest(read)
    digest.step(1000)
    assert digest.hashed_bytes == 1000
    digest.step(len(CONTENT))
    assert digest.hashed_bytes == 1000 + STEP_BYTES
    assert digest.hexdigest() == hashlib.sha256(CONTENT).hexdigest()


def test_a_step_that_was_under_way_when_it_started_over_does_not_count() -> None:
    digest: PrefixDigest

    def restarted_meanwhile(offset: int, length: int) -> bytes:
        digest.restart()
        return b"old" * 100

    digest = PrefixDigest(restarted_meanwhile)
    digest.step(300)
    assert digest.hashed_bytes == 0
    assert digest.hexdigest() == hashlib.sha256(b"").hexdigest()
