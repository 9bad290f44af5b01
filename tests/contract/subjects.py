"""The engines that the suite holds to the contract, and what each needs to be tested: a plan, a crash, a script.

A test asks a subject for what it cannot ask every engine alike: a scripted engine must be told what to say where a
real one is made to say it by a grammar, and it has no process to kill.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from localllm.core.generation import (
    ChatPrompt,
    GenerationRequest,
    Grammar,
    JsonSchema,
    Message,
    Sampling,
    TextPrompt,
)
from localllm.core.launch import LaunchPlan
from localllm.engines.base import Capability, Engine, Instance
from localllm.engines.llama_server.engine import LlamaServerEngine
from localllm.engines.ollama.engine import OllamaEngine
from localllm.engines.remote.engine import RemoteEngine
from localllm.engines.remote.target import Target
from tests.support.bare_server import BareServer
from tests.support.script import Flood, Hang, Raw, Text
from tests.support.scripted_engine import ScriptedEngine, ScriptedInstance

# Demo model and suite: a base model without a template, so the plan brings one, and strings that end its turn.
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
STOP = ("\nuser:", "\nsystem:")


class Subject(ABC):
    """One engine under test.

    ``real``: it runs a model; ``process_per_model``: in a process of its own that its load starts and measures.
    ``places``: how many requests at once a load can ask for; ``context_length``: what the suite's plans ask for.
    """

    name: str
    real: bool = True
    process_per_model: bool = True
    places: int = 3
    context_length: int = 768

    @abstractmethod
    def engine(self, log_dir: Path, *, token_timeout_s: float = 60) -> Engine: ...

    @abstractmethod
    def model_path(self) -> Path: ...

    def plan(
        self, *, context_length: int | None = None, parallel: int = 2, embedding: bool = False
    ) -> LaunchPlan:
        return LaunchPlan(
            model_path=str(self.model_path()),
            context_length=context_length or self.context_length,
            parallel=parallel,
            embedding=embedding,
            threads=1,
            chat_template=TEMPLATE,
            stop=STOP,
        )

    @abstractmethod
    def saying(self, instance: Instance, text: str, **fields: Any) -> GenerationRequest:
        """A request whose answer is exactly ``said(text)``, in tokens that split its characters."""

    def said(self, text: str) -> str:
        return text

    @abstractmethod
    def endless(self, instance: Instance) -> GenerationRequest:
        """A request that goes on until its context is full or its client leaves."""

    @abstractmethod
    def crash(self, instance: Instance) -> None:
        """Kill the engine's process from outside."""

    @abstractmethod
    def freeze(self, instance: Instance) -> None:
        """Make the engine stop answering without dying."""


class RealSubject(Subject):
    def __init__(self, name: str, model: Path) -> None:
        self.name = name
        self._model = model

    def model_path(self) -> Path:
        return self._model

    def engine(self, log_dir: Path, *, token_timeout_s: float = 60) -> Engine:
        if self.name == "llama_server":
            return LlamaServerEngine(log_dir=log_dir, token_timeout_s=token_timeout_s)
        from localllm.engines.llama_cpp.engine import LlamaCppEngine

        return LlamaCppEngine(log_dir=log_dir, token_timeout_s=token_timeout_s)

    def saying(self, instance: Instance, text: str, **fields: Any) -> GenerationRequest:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return request("Say it:", constraint=Grammar(f'root ::= "{escaped}"'), **fields)

    def endless(self, instance: Instance) -> GenerationRequest:
        return request("1, 2, 3,", constraint=Grammar('root ::= " word" root'))

    def crash(self, instance: Instance) -> None:
        os.kill(pid_of(instance), signal.SIGKILL)

    def freeze(self, instance: Instance) -> None:
        os.kill(pid_of(instance), signal.SIGSTOP)


class OllamaSubject(Subject):
    """A daemon of the engine's own on a free port, for every engine; all share one store of models.

    A schema takes the place of the grammar that Ollama does not have, so what is said is said as a JSON string.
    """

    name = "ollama"
    process_per_model = False
    places = 2
    context_length = 200

    def __init__(self, binary: str, model: Path, store: Path) -> None:
        self._binary = binary
        self._model = model
        self._store = store
        self._engine: OllamaEngine | None = None

    def model_path(self) -> Path:
        return self._model

    def engine(self, log_dir: Path, *, token_timeout_s: float = 60) -> OllamaEngine:
        self._engine = OllamaEngine(
            log_dir=log_dir,
            url=f"http://127.0.0.1:{free_port()}",
            binary=self._binary,
            parallel=self.places,
            environment={"OLLAMA_MODELS": str(self._store)},
            token_timeout_s=token_timeout_s,
        )
        return self._engine

    def saying(self, instance: Instance, text: str, **fields: Any) -> GenerationRequest:
        return request("Say it:", constraint=JsonSchema({"const": text}), **fields)

    def said(self, text: str) -> str:
        return json.dumps(text, ensure_ascii=False)

    def endless(self, instance: Instance) -> GenerationRequest:
        return request("1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,")

    def crash(self, instance: Instance) -> None:
        os.kill(self._daemon_pid(), signal.SIGKILL)

    def freeze(self, instance: Instance) -> None:
        os.kill(self._daemon_pid(), signal.SIGSTOP)

    def _daemon_pid(self) -> int:
        assert self._engine is not None
        pid = self._engine.daemon.pid
        assert pid is not None
        return pid


class RemoteSubject(Subject):
    """A bare llama.cpp server as somebody else's: its process is not the engine's to watch."""

    name = "remote"
    process_per_model = False

    def __init__(self, server: BareServer) -> None:
        self._server = server

    def model_path(self) -> Path:
        return Path("demo")

    def engine(self, log_dir: Path, *, token_timeout_s: float = 60) -> RemoteEngine:
        return RemoteEngine(
            Target(
                name="bare",
                base_url=f"{self._server.address}/v1",
                key=self._server.key,
                models={"demo": self._server.model},
                parallel=self._server.parallel,
                token_timeout_s=token_timeout_s,
            )
        )

    def saying(self, instance: Instance, text: str, **fields: Any) -> GenerationRequest:
        prompt = ChatPrompt(messages=(Message(role="user", content="Say it:"),))
        return request("", prompt=prompt, constraint=JsonSchema({"const": text}), **fields)

    def said(self, text: str) -> str:
        return json.dumps(text, ensure_ascii=False)

    def endless(self, instance: Instance) -> GenerationRequest:
        return request("1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,")

    def crash(self, instance: Instance) -> None:
        raise NotImplementedError

    def freeze(self, instance: Instance) -> None:
        raise NotImplementedError


class ScriptedSubject(Subject):
    name = "scripted"
    real = False
    process_per_model = False

    def engine(self, log_dir: Path, *, token_timeout_s: float = 60) -> ScriptedEngine:
        return ScriptedEngine(token_timeout_s=token_timeout_s)

    def model_path(self) -> Path:
        return Path("scripted.gguf")

    def saying(self, instance: Instance, text: str, **fields: Any) -> GenerationRequest:
        script(instance).enqueue(Raw(tuple(bytes([byte]) for byte in text.encode())))
        return request("Say it:", **fields)

    def endless(self, instance: Instance) -> GenerationRequest:
        script(instance).enqueue(Text("word"), Flood(1_000_000))
        return request("On and on:")

    def crash(self, instance: Instance) -> None:
        assert isinstance(instance, ScriptedInstance)
        instance.crash(exit_code=-signal.SIGKILL)

    def freeze(self, instance: Instance) -> None:
        engine = script(instance)
        engine.when("", Text("one"), Hang())


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def script(instance: Instance) -> ScriptedEngine:
    assert isinstance(instance, ScriptedInstance)
    return instance.engine


def pid_of(instance: Instance) -> int:
    assert instance.info.pid is not None
    return instance.info.pid


def request(text: str, *, greedy: bool = True, **fields: Any) -> GenerationRequest:
    """A text prompt, decoded greedily unless told otherwise."""
    fields.setdefault("prompt", TextPrompt(text))
    fields.setdefault("sampling", Sampling(temperature=0.0 if greedy else 1.0))
    return GenerationRequest(request_id="contract", **fields)


def can(instance: Instance, capability: Capability) -> bool:
    return capability in instance.info.capabilities


async def eventually(condition: Callable[[], Awaitable[object]], *, within_s: float = 10.0) -> None:
    """Until the condition holds. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        while not await condition():  # noqa: ASYNC110 — what is waited for is in another process
            await asyncio.sleep(0.01)


async def settled(instance: Instance, *, within_s: float) -> None:
    """Until nothing runs in the engine. Raises TimeoutError."""

    async def idle() -> bool:
        return (await instance.stats()).running == 0

    await eventually(idle, within_s=within_s)


async def somebody_waits(instance: Instance) -> None:
    async def waits() -> bool:
        return (await instance.stats()).waiting > 0

    await eventually(waits)
