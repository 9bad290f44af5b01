from __future__ import annotations

import subprocess
import sys

import msgspec

from localllm.hardware.metal_answers import MetalAnswers


def test_the_program_prints_a_figure_on_a_mac_and_a_reason_elsewhere() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "localllm.hardware.metal_answers"], capture_output=True, check=True, timeout=30
    ).stdout
    answers = msgspec.json.decode(printed, type=MetalAnswers)
    if sys.platform == "darwin":
        assert (answers.recommended_bytes or 0) > 0 or answers.error is not None
    else:
        assert answers.recommended_bytes is None
        assert answers.error is not None
