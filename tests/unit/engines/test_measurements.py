"""Measured speeds: kept whole, compared only with what is comparable."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from localllm.engines.measurements import Measurement, MeasurementFile, compare, latest

BASE = Measurement(
    at=1000.0,
    model="tiny:Q4_K_M",
    model_key="sha256:aa",
    quant="Q4_K_M",
    device="CPU",
    backend="cpu",
    engine="llama_cpp",
    build="0.3.36",
    threads=1,
    gpu_layers=0,
    kv_type="f16",
    prompt_tokens=512,
    generated_tokens=128,
    depth=0,
    prefill_tokens_per_second=400.0,
    decode_tokens_per_second=50.0,
)


def test_what_is_appended_is_read_back_and_damage_is_left_out(tmp_path: Path) -> None:
    file = MeasurementFile(tmp_path / "deep" / "measurements.jsonl")
    assert file.read() == ()
    file.append(BASE)
    with file.path.open("ab") as raw:
        raw.write(b'{"at": 12}\n\xff\xfe\nnot json\n')
    file.append(replace(BASE, at=2000.0))
    assert [m.at for m in file.read()] == [1000.0, 2000.0]
    assert file.path.stat().st_mode & 0o077 == 0


def test_a_drop_after_an_update_is_seen() -> None:
    slower = replace(BASE, at=2000.0, build="0.3.37", decode_tokens_per_second=44.0)
    change = compare([BASE], slower)
    assert change is not None
    assert change.slower
    assert change.build_changed
    assert change.decode_ratio == 0.88
    assert change.prefill_ratio == 1.0


def test_only_the_same_setting_is_compared_and_only_earlier_ones() -> None:
    assert compare([replace(BASE, threads=2), replace(BASE, device="GPU")], replace(BASE, at=2000.0)) is None
    assert compare([replace(BASE, at=3000.0)], replace(BASE, at=2000.0)) is None
    newest = replace(BASE, at=1500.0, decode_tokens_per_second=60.0)
    change = compare([BASE, newest], replace(BASE, at=2000.0, decode_tokens_per_second=57.0))
    assert change is not None
    assert change.before is newest
    assert not change.slower


def test_the_newest_shallow_measurement_stands_for_the_model() -> None:
    deep = replace(BASE, at=5000.0, depth=4096)
    newer = replace(BASE, at=4000.0)
    assert latest([BASE, deep, newer], "sha256:aa", "CPU") is newer
    assert latest([BASE], "sha256:bb", "CPU") is None
