from __future__ import annotations

import httpx
import pytest

from localllm.core.errors import BadRequest, DownloadFailed, Gated, GGUFError, NotFound
from localllm.hub.pull_plan import Prospect, Sources, prepare
from localllm.hub.references import parse_reference
from localllm.hub.sources.base import Access
from tests.support.hub_files import recommend
from tests.support.loopback_hub import COMMIT, REPOSITORY, LoopbackHub


@pytest.fixture
def sources(client: httpx.AsyncClient, access: Access) -> Sources:
    return Sources(client, access)


async def ask(sources: Sources, text: str, quant: str | None = None) -> Prospect:
    return await prepare(sources, parse_reference(text), recommend=recommend, quant=quant)


async def test_a_quant_that_is_named_is_taken(sources: Sources, hub: LoopbackHub) -> None:
    found = await ask(sources, f"hf.co/{REPOSITORY}:f16")
    plan = found.plan
    assert plan.name == f"{REPOSITORY}:F16"
    assert [file.name for file in plan.files] == ["tiny-F16.gguf"]
    assert plan.projector is not None
    assert (plan.licence, plan.origin) == ("apache-2.0", f"hf.co/{REPOSITORY}@{COMMIT}")
    assert found.facts is not None
    assert found.facts.architecture == "llama"
    assert found.quant_reason == "asked for"
    assert (await ask(sources, REPOSITORY, quant="F16")).plan.files == plan.files
    assert hub.sent_bytes < hub.size_of("tiny-F16.gguf") + hub.size_of("tiny-F32.gguf"), (
        "headers, not weights"
    )


async def test_the_parts_of_a_split_model_are_read_as_one(sources: Sources, hub: LoopbackHub) -> None:
    found = await ask(sources, f"{REPOSITORY}:BF16")
    assert len(found.plan.files) == 2
    assert found.facts is not None
    assert found.facts.size_bytes == sum(file.size_bytes for file in found.plan.files)


async def test_a_file_can_be_named(sources: Sources) -> None:
    found = await ask(sources, f"{REPOSITORY}:tiny-F32.gguf")
    assert (found.plan.quant, found.quant_reason) == ("F32", "the file that was asked for")


async def test_without_a_quant_the_planner_is_asked(
    client: httpx.AsyncClient, hub: LoopbackHub, access: Access
) -> None:
    hub.files = {name: content for name, content in hub.files.items() if name.startswith("tiny-")}
    hub.digests = {name: hub.digests[name] for name in hub.files}
    found = await ask(Sources(client, access), REPOSITORY)
    assert found.plan.quant == "F16"
    assert "closest there to Q8_0" in found.quant_reason
    assert found.fit is not None
    assert {row.quant for row in found.fit.rows if row.file_bytes_source == "listed"} == {"F16", "F32"}


async def test_ollamas_models_keep_their_tag(sources: Sources) -> None:
    found = await ask(sources, "ollama:tiny")
    assert found.plan.name == "tiny:latest"
    assert found.plan.stop == ("<end>",)
    assert found.plan.quant == "F16"


async def test_what_only_ollama_can_run_is_said(sources: Sources) -> None:
    found = await ask(sources, "ollama:odd")
    assert found.facts is None
    assert found.fit is None
    assert found.foreign is not None


async def test_an_address_is_enough(sources: Sources, hub: LoopbackHub) -> None:
    found = await ask(sources, f"{hub.url}/files/tiny-F16.gguf")
    assert found.plan.name == "tiny:F16"


async def test_refusals(sources: Sources, hub: LoopbackHub) -> None:
    with pytest.raises(NotFound, match="no Q4_K_M"):
        await ask(sources, f"{REPOSITORY}:Q4_K_M")
    with pytest.raises(BadRequest, match="nothing to pull") as caught:
        await ask(sources, "./m.gguf")
    assert "localllm import" in (caught.value.hint or "")
    hub.faults.body = b"<html>"
    with pytest.raises(DownloadFailed):
        await ask(sources, f"{hub.url}/files/tiny-F16.gguf")
    hub.faults.body = b""
    with pytest.raises(GGUFError, match="empty"):
        await ask(sources, f"{hub.url}/files/tiny-F16.gguf")
    hub.faults.body = None
    hub.faults.need_token = "x"
    with pytest.raises(Gated):
        await ask(sources, f"{REPOSITORY}:F16")
