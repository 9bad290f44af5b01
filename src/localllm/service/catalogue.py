"""The store as requests see it: looked up by name thousands of times, read from disk only when it has changed."""

from __future__ import annotations

from pathlib import Path

from localllm.core.control import ModelSummary
from localllm.hub.store import Store, StoredModel


class Catalogue:
    """A cache over ``Store`` that notices changes by the manifest folder's time stamp (one ``stat`` a look-up)."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.problems: tuple[str, ...] = ()
        self._folder = store.root / "manifests"
        self._stamp: int | None = None
        self._by_name: dict[str, StoredModel] = {}
        self._all: tuple[StoredModel, ...] | None = None

    def get(self, name: str) -> StoredModel:
        """Raises what ``Store.get`` raises: ModelNotFound with near names, ModelAmbiguous, BadName."""
        self._forget_if_changed()
        model = self._by_name.get(name)
        if model is None:
            model = self._by_name[name] = self.store.get(name)
        return model

    def list(self) -> tuple[StoredModel, ...]:
        self._forget_if_changed()
        if self._all is None:
            scan = self.store.scan()
            self._all, self.problems = scan.models, scan.problems
        return self._all

    def summaries(self, loaded: frozenset[str]) -> tuple[ModelSummary, ...]:
        return tuple(model.summary(loaded=model.name in loaded) for model in self.list())

    def forget(self) -> None:
        """Read everything anew at the next look-up."""
        self._by_name.clear()
        self._all = None

    def _forget_if_changed(self) -> None:
        stamp = _modified_ns(self._folder)
        if stamp != self._stamp:
            self._stamp = stamp
            self.forget()


def _modified_ns(folder: Path) -> int | None:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return None
