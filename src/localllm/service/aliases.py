"""The alias table, kept in a file of the state folder and read into every name that a request asks for."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from localllm.core.aliases import Alias, Question, Route, Targets, Version, route
from localllm.core.errors import BadName, Conflict, LocalLLMError, ModelNotFound, NotFound, StoreCorrupt
from localllm.hub.names import near_names
from localllm.hub.store import StoredModel
from localllm.service.manager import ModelSource
from localllm.settings.private import read_private, secure_folder, write_private

OWNER = "alias"
MAX_ALIASES = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


class Aliases:
    """Belongs to the event loop; the file is small and written whole. ``draw`` gives numbers in [0, 1)."""

    def __init__(
        self,
        path: Path,
        models: ModelSource,
        *,
        on_change: Callable[[], None] = lambda: None,
        draw: Callable[[], float] = random.random,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Raises StoreCorrupt when the file is there and is no alias table."""
        self._path = path
        self._models = models
        self._on_change = on_change
        self._draw = draw
        self._now = now
        self._by_name = {alias.name: alias for alias in _read(path)}

    def all(self) -> tuple[Alias, ...]:
        return tuple(self._by_name[name] for name in sorted(self._by_name))

    def find(self, name: str) -> Alias | None:
        return self._by_name.get(name)

    def reach(self, name: str) -> tuple[str, ...]:
        """The models that may answer a request for ``name``; itself when it is no alias. Raises ModelNotFound."""
        alias = self._by_name.get(name)
        named = alias.current.targets.models() if alias is not None else (name,)
        return tuple(dict.fromkeys(self._models.get(each).name for each in named))

    def set(self, name: str, targets: Targets) -> Alias:
        """Make ``name`` stand for ``targets`` from the next request on.

        Raises:
            BadName: not a name a request could ask for.
            Conflict: a model has that name.
            ModelNotFound: a target is no model (an alias of an alias is none either).
        """
        if not _NAME.fullmatch(name):
            raise BadName(
                f"{name!r} cannot be an alias.", hint="Use letters, digits and . _ - : /", param="name"
            )
        if self._is_model(name):
            raise Conflict(f"There is a model {name!r}.", hint="Choose another alias.", param="name")
        for model in targets.models():
            self._models.get(model)
        known = self._by_name.get(name)
        if known is None and len(self._by_name) >= MAX_ALIASES:
            raise Conflict(
                f"There are {MAX_ALIASES} aliases already.", hint="Remove one: localllm alias rm NAME"
            )
        at = self._now()
        alias = (
            known.changed(targets, at)
            if known
            else Alias(name=name, current=Version(set_at=at, targets=targets))
        )
        self._keep(self._by_name | {name: alias})
        return alias

    def rollback(self, name: str) -> Alias:
        """Back to what it was before the last change.

        Raises:
            NotFound: there is no such alias.
            Conflict: it never was anything else.
        """
        earlier = self._known(name).rolled_back()
        if earlier is None:
            raise Conflict(
                f"The alias {name!r} has no earlier form.", hint="See them with: localllm alias list"
            )
        self._keep(self._by_name | {name: earlier})
        return earlier

    def remove(self, name: str) -> None:
        """Raises NotFound."""
        self._known(name)
        self._keep({other: alias for other, alias in self._by_name.items() if other != name})

    def route(self, name: str, question: Question) -> Route | None:
        """Where a request for ``name`` goes; None when it is no alias."""
        alias = self._by_name.get(name)
        return route(alias.current.targets, question, self._draw()) if alias is not None else None

    def _is_model(self, name: str) -> bool:
        try:
            self._models.get(name)
        except LocalLLMError:
            return False
        return True

    def _known(self, name: str) -> Alias:
        alias = self._by_name.get(name)
        if alias is None:
            near = near_names(name, self._by_name)
            raise NotFound(
                f"There is no alias {name!r}.",
                hint=f"Did you mean {', '.join(near)}?" if near else "See them with: localllm alias list",
                param="name",
            )
        return alias

    def _keep(self, table: dict[str, Alias]) -> None:
        secure_folder(self._path.parent)
        write_private(self._path, msgspec.json.format(msgspec.json.encode(list(table.values())), indent=1))
        self._by_name = table
        self._on_change()


class NamedModels:
    """The library with the aliases in it: ``get`` gives the model behind a name, ``list`` has both kinds of names."""

    def __init__(self, models: ModelSource, aliases: Aliases) -> None:
        self._models = models
        self._aliases = aliases

    def get(self, name: str) -> StoredModel:
        alias = self._aliases.find(name)
        return self._models.get(alias.heaviest() if alias is not None else name)

    def list(self) -> tuple[StoredModel, ...]:
        named = []
        for alias in self._aliases.all():
            try:
                model = self._models.get(alias.heaviest())
            except (ModelNotFound, BadName):
                continue  # what it stood for was removed; asking for it says so
            named.append(replace(model, name=alias.name, owner=OWNER, added_at=alias.current.set_at))
        return (*self._models.list(), *named)


def _read(path: Path) -> list[Alias]:
    try:
        content = read_private(path)
        return msgspec.json.decode(content, type=list[Alias]) if content is not None else []
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(
            f"The alias table {path} cannot be read: {error}.", hint="Mend it, or move it away to begin anew."
        ) from error
