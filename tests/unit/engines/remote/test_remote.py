"""How another machine's server fails, over real HTTP: hanging, HTML, half a line, a wrong key, a wrong model."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from localllm.core.errors import (
    BadRequest,
    Cancelled,
    ContextLengthExceeded,
    EngineStalled,
    EngineUnavailable,
    GenerationFailed,
    LocalLLMError,
    ModelNotFound,
    QueueFull,
    RateLimited,
    Unsupported,
)
from localllm.core.generation import (
    ChatPrompt,
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    Message,
    ReasoningDelta,
    Sampling,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from localllm.core.launch import LaunchPlan
from localllm.engines.base import Instance
from localllm.engines.remote.engine import RemoteEngine
from localllm.engines.remote.target import Target

PLAN = LaunchPlan(model_path="", context_length=1, engine_model="big")


def delta(text: str = "", *, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text} | fields, "finish_reason": finish}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}


@dataclass
class Machine:
    """``events`` are sent as they are when bytes, else as JSON events; ``hangs`` sends nothing more then."""

    events: list[dict[str, Any] | bytes] = field(
        default_factory=lambda: [delta("Hel"), delta("lo", finish="stop"), USAGE, b"data: [DONE]\n\n"]
    )
    status: int = 200
    body: bytes = b"{}"
    content_type: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    entry: dict[str, Any] = field(default_factory=lambda: {"id": "big", "context_length": 512})
    hangs: bool = False
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    url: str = ""


@pytest.fixture
def machine() -> Iterator[Machine]:
    state = Machine()

    class Handler(_Handler):
        machine = state

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        state.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield state
        state.stopped.set()
        server.shutdown()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    machine: Machine

    def log_message(self, format: str, *args: object) -> None:
        return

    def do_GET(self) -> None:
        self.machine.keys.append(self.headers.get("authorization"))
        self._send(200, "application/json", json.dumps({"data": [self.machine.entry]}).encode())

    def do_POST(self) -> None:
        machine = self.machine
        machine.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        if machine.status != 200:
            self._send(machine.status, "application/json", machine.body)
            return
        self._send(200, machine.content_type, b"")
        for event in machine.events:
            self.wfile.write(
                event if isinstance(event, bytes) else b"data: %s\n\n" % json.dumps(event).encode()
            )
            self.wfile.flush()
        if machine.hangs:
            machine.stopped.wait(30)

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        for name, value in self.machine.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def target(machine: Machine, **fields: Any) -> Target:
    return Target(name="far", base_url=machine.url, first_token_timeout_s=0.4, token_timeout_s=0.4, **fields)


@pytest_asyncio.fixture
async def engine(machine: Machine) -> AsyncIterator[RemoteEngine]:
    engine = RemoteEngine(target(machine, key="secret"))
    yield engine
    await engine.close()


@pytest_asyncio.fixture
async def instance(engine: RemoteEngine) -> Instance:
    return await engine.load(PLAN, lambda progress: None)


def chat(**fields: Any) -> GenerationRequest:
    prompt = ChatPrompt(messages=(Message(role="user", content="Hi"),))
    return GenerationRequest(request_id="r", prompt=prompt, **fields)


async def events_of(instance: Instance, asked: GenerationRequest | None = None) -> list[Event]:
    return [event async for event in instance.generate(asked or chat())]


async def error_of(instance: Instance) -> LocalLLMError:
    with pytest.raises(LocalLLMError) as caught:
        await events_of(instance)
    return caught.value


async def test_an_answer_with_its_figures_and_the_key_in_the_header(
    machine: Machine, instance: Instance
) -> None:
    events = await events_of(instance, chat(max_tokens=5))
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "Hello"
    usage = events[-1]
    assert isinstance(usage, Usage) and (usage.prompt_tokens, usage.completion_tokens) == (7, 2)
    assert machine.keys == ["Bearer secret"]
    assert machine.asked[0]["max_tokens"] == 5 and machine.asked[0]["stream_options"] == {
        "include_usage": True
    }
    assert instance.info.context_length == 512


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, b'{"error": {"message": "no"}}', EngineUnavailable),
        (404, b'{"error": {"message": "no"}}', ModelNotFound),
        (429, b'{"error": {"message": "slow down"}}', RateLimited),
        (429, b'{"error": {"message": "full", "code": "queue_full"}}', QueueFull),
        (400, b'{"error": {"message": "bad", "param": "top_p"}}', BadRequest),
        (500, b"<html>oops</html>", GenerationFailed),
        (503, b"", EngineUnavailable),
        (400, b'{"error": {"message": "x", "code": "context_length_exceeded"}}', ContextLengthExceeded),
        (
            400,
            b'{"error": {"type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 8}}',
            ContextLengthExceeded,
        ),
        (
            400,
            b'{"object": "error", "message": "maximum context length is 99 tokens"}',
            ContextLengthExceeded,
        ),
    ],
)
async def test_what_a_refusal_means(
    machine: Machine, instance: Instance, status: int, body: bytes, kind: type[LocalLLMError]
) -> None:
    machine.status, machine.body, machine.headers = status, body, {"retry-after": "7"}
    error = await error_of(instance)
    assert type(error) is kind
    if isinstance(error, RateLimited | QueueFull):
        assert error.retry_after_s == 7
    if isinstance(error, ContextLengthExceeded):
        assert error.context_length > 0


async def test_a_page_instead_of_a_stream(machine: Machine, instance: Instance) -> None:
    machine.content_type, machine.events = "text/html", [b"<html>Welcome</html>"]
    error = await error_of(instance)
    assert isinstance(error, GenerationFailed) and "text/html" in error.message


@pytest.mark.parametrize("last", [b'data: {"choices": [{"ind', b'data: {"choices": [{"ind\n\n', b""])
async def test_half_an_event_and_an_early_end_are_no_whole_answer(
    machine: Machine, instance: Instance, last: bytes
) -> None:
    machine.events = [delta("Hel"), last]
    assert isinstance(await error_of(instance), GenerationFailed)


async def test_an_error_inside_the_stream(machine: Machine, instance: Instance) -> None:
    machine.events = [delta("Hel"), {"error": {"message": "the GPU fell off"}}]
    assert "the GPU fell off" in (await error_of(instance)).message


async def test_silence_is_a_stall(machine: Machine, instance: Instance) -> None:
    machine.hangs, machine.events = True, [delta("Hel")]
    assert isinstance(await error_of(instance), EngineStalled)


async def test_an_unload_ends_what_is_open(machine: Machine, instance: Instance) -> None:
    machine.hangs, machine.events = True, [delta("Hel")]
    answer = instance.generate(chat())
    async for event in answer:
        if isinstance(event, TextDelta):
            break
    await instance.unload()
    assert isinstance(await error_of(instance), Cancelled)


async def test_thoughts_and_calls(machine: Machine, instance: Instance) -> None:
    machine.events = [
        delta(reasoning_content="hm"),
        delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "clock", "arguments": '{"a"'}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}], finish="tool_calls"),
        USAGE,
    ]
    events = await events_of(instance)
    assert [e.text for e in events if isinstance(e, ReasoningDelta)] == ["hm"]
    assert [(e.id, e.name) for e in events if isinstance(e, ToolCallStart)] == [("c", "clock")]
    assert "".join(e.arguments for e in events if isinstance(e, ToolCallDelta)) == '{"a": 1}'
    assert [e.reason for e in events if isinstance(e, Finished)] == [FinishReason.TOOL_CALLS]


async def test_samplers_go_only_to_a_server_that_knows_them(machine: Machine, engine: RemoteEngine) -> None:
    instance = await engine.load(PLAN, lambda progress: None)
    with pytest.raises(Unsupported) as caught:
        await events_of(instance, chat(sampling=Sampling(top_k=5)))
    assert caught.value.param == "top_k"
    machine.entry |= {"owned_by": "vllm"}
    instance = await engine.load(PLAN, lambda progress: None)
    await events_of(instance, chat(sampling=Sampling(top_k=5, repeat_penalty=1.1)))
    assert machine.asked[-1]["top_k"] == 5 and machine.asked[-1]["repetition_penalty"] == 1.1


async def test_a_model_it_does_not_list_is_not_found_with_those_it_has(engine: RemoteEngine) -> None:
    with pytest.raises(ModelNotFound) as caught:
        await engine.load(LaunchPlan(model_path="", context_length=1, engine_model="other"), lambda p: None)
    assert caught.value.near == ("big",)


async def test_a_context_nobody_tells_is_assumed_and_said_to_be(
    machine: Machine, engine: RemoteEngine
) -> None:
    machine.entry = {"id": "big"}
    info = (await engine.load(PLAN, lambda progress: None)).info
    assert "remotes.far.context_length" in " ".join(info.warnings)


async def test_a_machine_that_is_not_there() -> None:
    engine = RemoteEngine(Target(name="far", base_url="http://127.0.0.1:9/v1"))
    status = await engine.status()
    assert not status.available and "base_url" in (status.hint or "")
    await engine.close()


def test_where_the_key_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from a file\n")
    named = Target(name="far", base_url="http://x", key="k", key_env="FAR_KEY", key_file=str(file))
    assert named.secret({"FAR_KEY": " of the environment "}) == "of the environment"
    with pytest.raises(EngineUnavailable, match="not there"):
        named.secret({})
    assert Target(name="far", base_url="http://x", key_file=str(file)).secret() == "from a file"
    with pytest.raises(EngineUnavailable, match="cannot be read"):
        Target(name="far", base_url="http://x", key_file=str(tmp_path / "none")).secret()
    assert Target(name="far", base_url="http://x", key="k").secret() == "k"
