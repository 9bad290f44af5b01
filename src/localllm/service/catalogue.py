"""The library as requests see it: looked up by name thousands of times, read from disk only when it has changed.

Our own store comes first; what other tools keep on this machine follows, under its owner's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from localllm.core.control import ModelSummary
from localllm.core.errors import BadName, ModelNotFound
from localllm.hub.names import near_names
from localllm.hub.store import Store, StoredModel


def _none() -> Sequence[StoredModel]:
    return ()


class Catalogue:
    """A cache over ``Store`` that notices changes by the manifest folder's time stamp (one ``stat`` a look-up).

    ``others`` gives the models of other tools, as they were last seen; ``alias`` what a pull would have called a model
    (``qwen3:8b`` is ``qwen3-8b`` here), None when it does not know the name either.
    """

    def __init__(
        self,
        store: Store,
        others: Callable[[], Sequence[StoredModel]] = _none,
        alias: Callable[[str], str | None] = lambda name: None,
    ) -> None:
        self.store = store
        self._alias = alias
        self._others = others
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
            model = self._by_name[name] = self._look_up(name)
        return model

    def list(self) -> tuple[StoredModel, ...]:
        self._forget_if_changed()
        if self._all is None:
            scan = self.store.scan()
            self._all, self.problems = (*scan.models, *self._others()), scan.problems
        return self._all

    def summaries(self, loaded: frozenset[str]) -> tuple[ModelSummary, ...]:
        return tuple(model.summary(loaded=model.name in loaded) for model in self.list())

    def forget(self) -> None:
        """Read everything anew at the next look-up."""
        self._by_name.clear()
        self._all = None

    def _look_up(self, name: str) -> StoredModel:
        try:
            return self.store.get(name)
        except (ModelNotFound, BadName) as error:
            others = {model.name.lower(): model for model in self._others()}
            wanted = name.lower()
            variants = [each for each in others if each.rpartition(":")[0] == wanted]
            found = others.get(wanted) or others.get(f"{wanted}:latest") or self._aliased(name)
            if found is None and len(variants) == 1:
                found = others[variants[0]]
            if found is None and isinstance(error, BadName):
                raise
            if found is None:
                near = near_names(name, (model.name for model in self.list()))
                raise ModelNotFound(name, near=near) from None
            return found

    def _aliased(self, name: str) -> StoredModel | None:
        meant = self._alias(name)
        if meant is None or meant.lower() == name.lower():
            return None
        try:
            return self.store.get(meant)
        except (ModelNotFound, BadName):
            return None

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
