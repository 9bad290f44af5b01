from __future__ import annotations

from pathlib import Path

import pytest

from localllm.core.aliases import Question, Share, Targets
from localllm.core.errors import BadName, Conflict, ModelNotFound, NotFound, StoreCorrupt
from localllm.service.aliases import Aliases, NamedModels
from tests.support.stored_models import ListedModels, stored_model


@pytest.fixture
def models(tmp_path: Path) -> ListedModels:
    return ListedModels([stored_model(name, tmp_path / f"{name}.gguf") for name in ("a", "b")])


def targets(*names: str) -> Targets:
    return Targets(shares=tuple(Share(model=name) for name in names))


def test_an_alias_outlives_the_process_and_its_change_is_taken_back(
    tmp_path: Path, models: ListedModels
) -> None:
    path = tmp_path / "data" / "aliases.json"
    Aliases(path, models).set("gpt-4o", targets("a"))
    Aliases(path, models).set("gpt-4o", targets("b"))
    again = Aliases(path, models)
    assert NamedModels(models, again).get("gpt-4o").name == "b"
    again.rollback("gpt-4o")
    assert NamedModels(models, Aliases(path, models)).get("gpt-4o").name == "a"
    with pytest.raises(Conflict):
        again.rollback("gpt-4o")
    again.remove("gpt-4o")
    with pytest.raises(NotFound):
        Aliases(path, models).remove("gpt-4o")


def test_a_split_goes_by_the_draw(tmp_path: Path, models: ListedModels) -> None:
    draws = iter((0.1, 0.9))
    aliases = Aliases(tmp_path / "aliases.json", models, draw=lambda: next(draws))
    aliases.set("n", targets("a", "b"))
    routes = [aliases.route("n", Question(text="")) for _ in range(2)]
    assert [route.models for route in routes if route] == [("a",), ("b",)]
    assert aliases.route("a", Question(text="")) is None


@pytest.mark.parametrize(
    ("name", "model", "error"),
    [
        ("a", "b", Conflict),
        ("n", "none", ModelNotFound),
        ("bad name", "a", BadName),
        ("", "a", BadName),
    ],
)
def test_an_alias_that_leads_nowhere_is_refused(
    tmp_path: Path, models: ListedModels, name: str, model: str, error: type[Exception]
) -> None:
    aliases = Aliases(tmp_path / "aliases.json", models)
    with pytest.raises(error):
        aliases.set(name, targets(model))
    assert aliases.all() == ()


def test_lists_show_both_kinds_of_names(tmp_path: Path, models: ListedModels) -> None:
    aliases = Aliases(tmp_path / "aliases.json", models)
    aliases.set("n", targets("b"))
    named = NamedModels(models, aliases)
    assert [(m.name, m.owner) for m in named.list()][-1] == ("n", "alias")
    assert len(named.list()) == 3


def test_a_table_that_is_not_ours_is_not_written_over(tmp_path: Path, models: ListedModels) -> None:
    path = tmp_path / "aliases.json"
    path.write_text("not json")
    path.chmod(0o600)
    with pytest.raises(StoreCorrupt):
        Aliases(path, models)
