"""Installing builds: a real pip into a real folder, from small wheels made here; nothing half-done is ever used."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest

from localllm.core.errors import BadName, EngineUnavailable, LoadFailed, NotFound
from localllm.engines.builds.choice import Attempt, Backend, BuildChoice
from localllm.engines.builds.install import find_installer, install_build, probe_build
from localllm.engines.builds.shelf import Build, Shelf

MODULE = """
__version__ = {version!r}
class llama_cpp:
    llama_backend_init = staticmethod(lambda: None)
    llama_print_system_info = staticmethod(lambda: b"CPU : SSE3 = 1 | AVX512 = 0 | ")
    llama_supports_gpu_offload = staticmethod(lambda: {offload!r})
"""
BROKEN = "raise ImportError('libcuda.so.1: cannot open shared object file')"
PREBUILT = Attempt("prebuilt")


def wheel(folder: Path, source: str, version: str = "0.3.40") -> Path:
    """A wheel named llama-cpp-python with one module in it."""
    folder.mkdir(exist_ok=True)
    dist = f"llama_cpp_python-{version}.dist-info"
    files = {
        "llama_cpp/__init__.py": source,
        f"{dist}/METADATA": f"Metadata-Version: 2.1\nName: llama-cpp-python\nVersion: {version}\n",
        f"{dist}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},{len(text)}\n"
        for name, text in files.items()
    )
    path = folder / f"llama_cpp_python-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{dist}/RECORD": f"{record}{dist}/RECORD,,\n"}.items():
            archive.writestr(name, text)
    return folder


def install(shelf: Shelf, wheels: Path, *, backend: Backend = Backend.CPU) -> Build:
    return install_build(
        BuildChoice(backend, "test", (PREBUILT,)),
        shelf,
        say=lambda _: None,
        extra_arguments=("--no-index", "--find-links", str(wheels)),
    )


def test_a_build_is_installed_probed_and_published(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "builds")
    build = install(shelf, wheel(tmp_path / "wheels", MODULE.format(version="0.3.40", offload=False)))
    assert (build.name, build.version, build.cpu_features) == ("0.3.40-cpu", "0.3.40", ("SSE3",))
    assert shelf.builds() == (build,)
    assert shelf.in_use() is None
    shelf.use(build.name)
    assert shelf.in_use() == build
    assert probe_build(shelf.path_of(build.name)).version == "0.3.40"


def test_a_build_that_does_not_start_is_not_published_and_the_old_one_stays(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "builds")
    good = install(shelf, wheel(tmp_path / "good", MODULE.format(version="0.3.40", offload=False)))
    shelf.use(good.name)
    with pytest.raises(EngineUnavailable, match=r"libcuda\.so\.1"):
        install(shelf, wheel(tmp_path / "bad", BROKEN))
    assert shelf.builds() == (good,)
    assert shelf.in_use() == good
    assert not list(shelf.root.glob(".staging-*"))


def test_a_cuda_build_without_cuda_in_it_is_refused(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "builds")
    wheels = wheel(tmp_path / "wheels", MODULE.format(version="0.3.40", offload=False))
    with pytest.raises(EngineUnavailable, match="no cuda support"):
        install(shelf, wheels, backend=Backend.CUDA)
    with_offload = wheel(tmp_path / "more", MODULE.format(version="0.3.41", offload=True), "0.3.41")
    assert install(shelf, with_offload, backend=Backend.CUDA).name == "0.3.41-cuda"


def test_every_way_failing_says_why_and_missing_tools_are_named(tmp_path: Path) -> None:
    source = Attempt("source", needs=("cc-that-is-nowhere",))
    choice = BuildChoice(Backend.CPU, "test", (PREBUILT, source))
    (tmp_path / "empty").mkdir()
    with pytest.raises(EngineUnavailable) as caught:
        install_build(
            choice,
            Shelf(tmp_path / "builds"),
            say=lambda _: None,
            extra_arguments=("--no-index", "--find-links", str(tmp_path / "empty")),
        )
    assert "prebuilt install failed" in caught.value.message
    assert "cc-that-is-nowhere" in caught.value.message


def test_reinstalling_replaces_and_removing_gives_up_the_choice(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "builds")
    wheels = wheel(tmp_path / "wheels", MODULE.format(version="0.3.40", offload=False))
    first = install(shelf, wheels)
    second = install(shelf, wheels)
    assert [b.name for b in shelf.builds()] == [first.name]
    assert second.installed_at >= first.installed_at
    shelf.use(second.name)
    shelf.remove(second.name)
    assert shelf.builds() == ()
    assert shelf.in_use() is None


def test_names_cannot_leave_the_shelf_and_damage_is_named(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "builds")
    (shelf.root / "half").mkdir(parents=True)
    (shelf.root / "half" / "build.json").write_text("{")
    assert shelf.builds() == ()
    assert shelf.damaged() == ("half",)
    for name in ("../etc", "", "a/b", ".staging-x"):
        with pytest.raises(BadName):
            shelf.path_of(name)
    with pytest.raises(NotFound):
        shelf.use("0.3.1-cpu")
    (shelf.root / "in-use").write_text("../../etc")
    assert shelf.in_use() is None


def test_something_here_can_install() -> None:
    assert find_installer()


@pytest.mark.llama_cpp
def test_the_environments_own_build_is_heard(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="needs llama-cpp-python (extra `llama-cpp`)")
    probed = probe_build(None)
    assert probed.version
    assert "CPU" in probed.devices
    (tmp_path / "llama_cpp.py").write_text("raise SystemExit(7)")
    with pytest.raises(LoadFailed, match="exit code 7"):
        probe_build(tmp_path)
