from __future__ import annotations

from localllm.core.errors import EngineUnavailable
from localllm.engines.remote.engine import RemoteEngine
from localllm.engines.remote.target import Target
from localllm.engines.remote.wire import ModelEntry
from localllm.service.remote_models import RemoteModels


class Listing(RemoteEngine):
    """A remote that lists what the test says, or does not answer."""

    def __init__(self, name: str, listed: list[ModelEntry] | None, **models: str) -> None:
        super().__init__(Target(name=name, base_url="http://127.0.0.1:9/v1", models=models))
        self.listed = listed

    async def models(self) -> tuple[ModelEntry, ...]:
        if self.listed is None:
            raise EngineUnavailable("It is off.")
        return tuple(self.listed)


async def test_listed_and_mapped_models_are_there_under_the_remotes_name() -> None:
    far = Listing("far", [ModelEntry("org/big", max_model_len=4096), ModelEntry("small")], tiny="small")
    off = Listing("off", None, chosen="their-name")
    changes: list[None] = []
    remotes = RemoteModels([far, off], lambda: changes.append(None))
    assert [model.name for model in remotes.models] == ["far/tiny", "off/chosen"]
    await remotes.look()
    found = {model.name: model for model in remotes.models}
    assert set(found) == {"far/org/big", "far/tiny", "off/chosen"}
    assert found["far/org/big"].trained_context_length == 4096
    assert found["far/tiny"].owner == "remote:far"
    assert len(changes) == 1
    await remotes.look()
    assert len(changes) == 1


async def test_a_remote_that_goes_off_keeps_its_models() -> None:
    far = Listing("far", [ModelEntry("big")])
    remotes = RemoteModels([far])
    await remotes.look()
    far.listed = None
    await remotes.look()
    assert [model.name for model in remotes.models] == ["far/big"]
