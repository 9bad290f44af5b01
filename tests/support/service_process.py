"""The service as a subprocess with a home of its own: started, spoken to, killed, and looked at from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from localllm.core.control import Identity
from localllm.settings.identity import read_admin_key, read_identity
from localllm.settings.paths import Paths
from tests.support.until import wait_until

ROOT = Path(__file__).parents[2]
SCRIPTED = "tests.support.scripted_service"
REAL = "localllm"


class ServiceProcess:
    """``module`` is run with ``-m``; the environment is the test's own, on a free port."""

    def __init__(self, paths: Paths, *, module: str = SCRIPTED, **settings: str) -> None:
        self.paths = paths
        self._module = module
        self._env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "default",
            "LOCALLLM_SERVER_PORT": "0",
            **settings,
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.output = paths.log_dir.parent / "output.txt"

    def launch(self) -> subprocess.Popen[bytes]:
        """Start it and return at once."""
        arguments = ["serve"] if self._module == REAL else []
        self.output.parent.mkdir(parents=True, exist_ok=True)
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self._module, *arguments],
                env=self._env,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        return self.process

    def start(self) -> ServiceProcess:
        """Start it and wait until it answers."""
        process = self.launch()

        def answers() -> bool:
            assert process.poll() is None, f"the service ended: {self.output.read_text()}"
            identity = read_identity(self.paths)
            if identity is None or identity.pid != process.pid:
                return False
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(f"{self.url}/health", timeout=5).status_code == 200
            return False

        wait_until(answers, what="the service's start")
        return self

    @property
    def identity(self) -> Identity:
        found = read_identity(self.paths)
        assert found is not None, "no identity file"
        return found

    @property
    def url(self) -> str:
        return f"http://{self.identity.host}:{self.identity.port}"

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {read_admin_key(self.paths)}"}

    def get(self, path: str, **query: str | int) -> Any:
        return self._checked(
            httpx.get(f"{self.url}/localllm{path}", params=query, headers=self.headers, timeout=30)
        )

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        return self._checked(
            httpx.post(f"{self.url}/localllm{path}", json=body, headers=self.headers, timeout=60)
        )

    def chat(self, text: str, **more: object) -> httpx.Response:
        body = {"model": "demo", "messages": [{"role": "user", "content": text}], **more}
        return httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=60)

    @contextlib.contextmanager
    def streamed(self, text: str, **more: object) -> Iterator[Iterator[str]]:
        """The lines of a streamed chat completion."""
        body = {
            "model": "demo",
            "messages": [{"role": "user", "content": text}],
            "stream": True,
            **more,
        }
        with httpx.stream("POST", f"{self.url}/v1/chat/completions", json=body, timeout=60) as response:
            assert response.status_code == 200, response.read()
            yield (line for line in response.iter_lines() if line)

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Send a signal and wait for the end; the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=60)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=20)

    @staticmethod
    def _checked(response: httpx.Response) -> Any:
        assert response.status_code < 400, f"{response.status_code}: {response.text}"
        return response.json()


def run_verb(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """One ``localllm`` command in the test's environment."""
    return subprocess.run(
        [sys.executable, "-m", "localllm", *arguments],
        env={**os.environ, "LOCALLLM_SERVER_PORT": "0", **environment},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def verb_json(*arguments: str) -> Any:
    """The ``data`` of a verb's JSON."""
    done = run_verb(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["data"]
