"""Every route of the control namespace through the typed client, against a live service."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from localllm.client.client import Client
from localllm.core.control import (
    ChatPatch,
    ChatSettings,
    ConfigChange,
    ImportRequest,
    InstancePhase,
    LoadRequest,
    RegenerateRequest,
    RequestPhase,
    SendRequest,
    State,
    StateDelta,
    Task,
    TaskPhase,
    UnloadRequest,
)
from localllm.core.errors import (
    BadName,
    BadRequest,
    ConfigInvalid,
    ConfigUnknownKey,
    EngineCrashed,
    GGUFError,
    LoadFailed,
    ModelInUse,
    ModelNotFound,
    NotFound,
    NotRunning,
    ServiceError,
    Unauthorized,
)
from tests.support.script import Crash, Text, Wait
from tests.unit.client.conftest import Live


async def test_the_service_says_who_it_is_and_how_it_is(live: Live) -> None:
    identity = await live.client.identity()
    state = await live.client.state()

    assert state.identity == identity and identity.port
    assert [model.name for model in state.models] == ["demo:F32"] or len(state.models) == 1
    assert (await live.client.hardware()).devices
    assert (await live.client.doctor()).checks
    assert "level" in await live.client.logs(lines=5) or await live.client.logs(lines=5) == ""


async def test_a_wrong_key_is_refused_everywhere_but_at_the_identity(live: Live) -> None:
    async with Client(live.client.base_url, "wrong") as stranger:
        assert await stranger.identity() == await live.client.identity()
        with pytest.raises(Unauthorized):
            await stranger.state()
        with pytest.raises(Unauthorized):
            await anext(stranger.events())


async def test_models_are_listed_shown_fitted_and_named_when_wrong(live: Live) -> None:
    (model,) = (await live.client.models()).models
    detail = await live.client.model("demo")
    assert detail.summary.name == model.name and detail.facts["architecture"] == "llama"
    assert (await live.client.fit("demo")).rows

    with pytest.raises(ModelNotFound) as caught:
        await live.client.model("dem")
    assert model.name in caught.value.near
    with pytest.raises(BadRequest, match="kv_type"):
        await live.client.fit("demo", kv_type="q3")
    with pytest.raises(BadRequest, match="context_length"):
        await live.client.fit("demo", context_length=-1)


async def test_loading_reports_progress_and_unloading_ends_it(live: Live) -> None:
    steps: list[Task] = []
    state = await live.client.load(LoadRequest(model="demo", context_length=512), steps.append)
    assert (state.phase, state.context_length) == (InstancePhase.READY, 512)
    assert steps and all(task.kind == "load" for task in steps)

    with pytest.raises(ModelInUse):
        await live.client.remove_model("demo")
    await live.client.unload(UnloadRequest(model="demo"))
    assert (await live.client.state()).instances == ()
    with pytest.raises(NotFound, match="not loaded"):
        await live.client.unload(UnloadRequest(model="demo"))


async def test_a_failed_load_is_the_error_it_was(live: Live) -> None:
    live.engine.load_failures.append(
        LoadFailed("It is damaged.", hint="Get it anew.", details={"exit_code": 1})
    )
    with pytest.raises(LoadFailed, match="damaged") as caught:
        await live.client.load(LoadRequest(model="demo"))
    assert caught.value.hint == "Get it anew." and caught.value.details == {"exit_code": 1}
    with pytest.raises(ModelNotFound):
        await live.client.load(LoadRequest(model="nope"))


async def test_an_import_is_followed_to_its_end_and_can_be_removed(live: Live, tmp_path: Path) -> None:
    source = live.paths.data_dir / "tiny.gguf"
    task = await live.client.import_model(ImportRequest(path=str(source), name="copied"))
    steps = [step async for step in live.client.follow_task(task)]
    last = steps[-1] if steps else task
    assert last.phase is TaskPhase.DONE and last.result and last.result.startswith("copied")
    assert (await live.client.remove_model(last.result)).freed_bytes > 0

    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"PK\x03\x04 not a model")
    task = await live.client.import_model(ImportRequest(path=str(bad)))
    last = [step async for step in live.client.follow_task(task)][-1]
    assert (last.phase, last.error_code) == (TaskPhase.FAILED, GGUFError.code)


async def test_a_removed_model_is_gone_by_force_even_when_loaded(live: Live) -> None:
    await live.client.load(LoadRequest(model="demo"))
    await live.client.remove_model("demo", force=True)
    assert (await live.client.models()).models == ()


async def test_events_begin_with_a_snapshot_and_go_on_with_changes(live: Live) -> None:
    events = live.client.events()
    assert isinstance(await anext(events), State)
    await live.client.load(LoadRequest(model="demo"))
    async for event in events:
        if isinstance(event, StateDelta) and event.instances:
            assert event.instances[0].model.startswith("demo")
            break
    await events.aclose()


async def test_a_chat_from_its_creation_to_its_deletion(live: Live) -> None:
    client = live.client
    chat = (await client.create_chat(ChatPatch(settings=ChatSettings(model="demo")))).summary.id
    sent = await client.send(chat, SendRequest(content="hello there"))
    events = [event async for event in client.reply_stream(chat, sent.reply_id)]
    assert events[-1].message is not None and events[-1].message.content == "You said: hello there"

    again = await client.regenerate(chat, RegenerateRequest(message_id=sent.reply_id))
    assert [e async for e in client.reply_stream(chat, again.reply_id)][-1].kind == "done"
    renamed = await client.update_chat(chat, ChatPatch(title="Mine", leaf_id=sent.reply_id))
    assert (renamed.summary.title, renamed.leaf_id) == ("Mine", sent.reply_id)
    assert [c.id for c in (await client.chats("hello")).chats] == [chat]
    assert (await client.export(chat)).startswith("# Mine")
    await client.delete_chat(chat)
    with pytest.raises(NotFound):
        await client.chat(chat)


async def test_stopping_a_reply_over_the_wire(live: Live) -> None:
    live.engine.enqueue(Text("a beginning"), Wait(asyncio.Event()))
    chat = (await live.client.create_chat(ChatPatch(settings=ChatSettings(model="demo")))).summary.id
    sent = await live.client.send(chat, SendRequest(content="go"))
    stream = live.client.reply_stream(chat, sent.reply_id)
    text = ""
    async for event in stream:
        text += event.text or (event.message.content if event.message else "")
        if text == "a beginning":
            break
    await stream.aclose()
    detail = await live.client.stop(chat)
    assert detail.messages[-1].state == "partial" and detail.messages[-1].content == "a beginning"


async def test_the_ports_stream_through_the_client(live: Live) -> None:
    body: dict[str, object] = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}
    chunks = [chunk async for chunk in live.client.stream_completion(body)]
    assert chunks[0]["object"] == "chat.completion.chunk"

    live.engine.enqueue(Text("half"), Crash())
    with pytest.raises(EngineCrashed):
        async for _ in live.client.stream_completion(body):
            pass
    with pytest.raises(ModelNotFound):
        await anext(live.client.stream_completion({**body, "model": "nope"}))


async def test_requests_and_history_are_kept(live: Live) -> None:
    body: dict[str, object] = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}
    _ = [chunk async for chunk in live.client.stream_completion(body)]
    (record,) = (await live.client.requests(limit=5)).records
    assert record.status == 200 and await live.client.request(record.id) == record
    assert (await live.client.requests(before=record.created_at)).records == ()
    with pytest.raises(NotFound):
        await live.client.request("nope")
    await live.client.history(60)
    with pytest.raises(BadRequest):
        await live.client.requests(limit=0)


async def test_settings_are_written_and_shown(live: Live) -> None:
    view = await live.client.set_config(ConfigChange(key="ui.theme", value="nord"))
    entry = next(e for e in view.entries if e.key == "ui.theme")
    assert (entry.value, entry.source) == ("nord", "file")
    port = next(e for e in view.entries if e.key == "server.port")
    assert (port.value, port.source) == (0, "command line")
    assert (await live.client.config()).entries == view.entries
    with pytest.raises(ConfigUnknownKey):
        await live.client.set_config(ConfigChange(key="ui.them", value="x"))
    with pytest.raises(ConfigInvalid):
        await live.client.set_config(ConfigChange(key="server.queue_limit", value="many"))


async def test_what_runs_is_in_the_state(live: Live) -> None:
    live.engine.enqueue(Text("one two"), Wait(asyncio.Event()))
    chat = (await live.client.create_chat(ChatPatch(settings=ChatSettings(model="demo")))).summary.id
    await live.client.send(chat, SendRequest(content="go"))
    async for event in live.client.events():
        if event.requests and event.requests[0].phase is RequestPhase.DECODE:
            assert event.requests[0].endpoint == "chat"
            break
    await live.client.stop(chat)


async def test_nobody_there_is_not_running_and_a_stranger_is_a_service_error(live: Live) -> None:
    async with Client("http://127.0.0.1:1") as nobody:
        with pytest.raises(NotRunning):
            await nobody.identity()

    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 4\r\n\r\noops")
        writer.close()

    async with await asyncio.start_server(stranger, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Client(f"http://127.0.0.1:{port}") as client:
            with pytest.raises(ServiceError, match="502"):
                await client.identity()


@pytest.mark.parametrize("name", ["..", "../state", "a/../../state", "."])
async def test_a_name_cannot_lead_to_another_route(live: Live, name: str) -> None:
    with pytest.raises((BadName, ModelNotFound, NotFound)):
        await live.client.model(name)
