"""Children are real processes here: small Python programs that die, shout or linger as told."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from localllm.engines.process import Child, ChildSpec, child_environment, signal_group, spawn
from localllm.engines.reaper import NONCE_VARIABLE, Reaper

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions are POSIX")

ECHO = "import sys\nprint('up', flush=True)\nfor line in sys.stdin: print(line, end='', flush=True)"
DEAF = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(60)"


async def start(code: str, tmp_path: Path, **environment: str) -> Child:
    spec = ChildSpec("test", (sys.executable, "-c", code), tmp_path / "logs", environment)
    return await spawn(spec, Reaper(tmp_path / "children"))


async def ready(child: Child) -> None:
    assert await child.stdout.readline() == b"up\n"


async def test_talks_over_stdin_and_stdout_and_ends_when_stdin_closes(tmp_path: Path) -> None:
    child = await start(ECHO, tmp_path)
    await ready(child)
    child.stdin.write(b"hello\n")
    assert await child.stdout.readline() == b"hello\n"
    end = await child.stop()
    assert (end.expected, end.exit_code) == (True, 0)
    assert not child.alive


async def test_a_deaf_child_is_killed_after_the_grace_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localllm.engines.process._TERM_WAIT_S", 0.1)
    child = await start(DEAF, tmp_path)
    await ready(child)
    end = await child.stop(grace_s=0.1)
    assert (end.expected, end.exit_code) == (True, -signal.SIGKILL)


async def test_a_crash_is_unexpected_and_keeps_the_last_words(tmp_path: Path) -> None:
    child = await start(
        "import os, sys\nprint('GGML_ASSERT(x) failed', file=sys.stderr)\nos.abort()", tmp_path
    )
    end = await asyncio.wait_for(child.exited, 10)
    assert (end.expected, end.exit_code) == (False, -signal.SIGABRT)
    assert "abort" in end.cause
    assert end.stderr_tail == "GGML_ASSERT(x) failed"
    assert "GGML_ASSERT" in (tmp_path / "logs" / "test.log").read_text()


async def test_kill_with_a_cause_reports_that_cause(tmp_path: Path) -> None:
    child = await start(ECHO, tmp_path)
    await ready(child)
    child.kill("It said nothing for 60 s.")
    end = await asyncio.wait_for(child.exited, 10)
    assert (end.expected, end.cause) == (False, "It said nothing for 60 s.")


async def test_descendants_go_with_it(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(p.pid, flush=True)\ntime.sleep(60)"
    )
    child = await start(code, tmp_path)
    grandchild = psutil.Process(int(await child.stdout.readline()))
    child.kill()
    await asyncio.wait_for(child.exited, 10)
    await asyncio.to_thread(psutil.wait_procs, [grandchild], 5)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


async def test_a_missing_program_ends_with_127_and_says_so(tmp_path: Path) -> None:
    child = await spawn(
        ChildSpec("test", ("no-such-program-here",), tmp_path / "logs"), Reaper(tmp_path / "children")
    )
    end = await asyncio.wait_for(child.exited, 10)
    assert end.exit_code == 127
    assert "no-such-program-here" in end.stderr_tail


async def test_cancelling_a_stop_kills_at_once(tmp_path: Path) -> None:
    child = await start(DEAF, tmp_path)
    await ready(child)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await child.stop(grace_s=30)
    end = await asyncio.wait_for(child.exited, 10)
    assert end.exit_code == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="prctl and oom_score_adj are Linux")
async def test_the_child_has_its_own_session_no_core_file_and_is_first_to_go(tmp_path: Path) -> None:
    child = await start(ECHO, tmp_path)
    await ready(child)
    assert os.getsid(child.pid) == child.pid
    score = await asyncio.to_thread(Path(f"/proc/{child.pid}/oom_score_adj").read_text)
    assert score.strip() == "500"
    assert psutil.Process(child.pid).rlimit(psutil.RLIMIT_CORE) == (0, 0)
    await child.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux")
async def test_the_child_dies_with_a_killed_owner(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
from pathlib import Path
from localllm.engines.process import ChildSpec, spawn
from localllm.engines.reaper import Reaper
async def main():
    spec = ChildSpec("x", (sys.executable, "-c", {DEAF!r}), Path({str(tmp_path)!r}))
    child = await spawn(spec, Reaper(Path({str(tmp_path)!r})))
    await child.stdout.readline()
    print(child.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    orphan = psutil.Process(int(await owner.stdout.readline()))
    owner.kill()
    await owner.wait()
    await asyncio.to_thread(psutil.wait_procs, [orphan], 5)
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE


def test_secrets_and_overrides_stay_out_of_the_environment() -> None:
    ours = {
        "PATH": "/bin",
        "HF_TOKEN": "hf_secret",
        "OPENAI_API_KEY": "sk-secret",
        "LLAMA_ARG_CTX_SIZE": "1",
        "LOCALLLM_SERVER_API_KEYS": "k",
        "CUDA_VISIBLE_DEVICES": "1",
    }
    seen = child_environment(ours, {"EXTRA": "1"}, "n0nce")
    assert seen.keys() == {
        "PATH",
        "CUDA_VISIBLE_DEVICES",
        "EXTRA",
        "GGML_NO_BACKTRACE",
        "PYTHONUNBUFFERED",
        NONCE_VARIABLE,
    }


@pytest.mark.parametrize("pid", [0, 1, -1])
def test_a_signal_never_goes_to_our_own_group(pid: int) -> None:
    with pytest.raises(ValueError, match="not a child"):
        signal_group(pid, signal.SIGKILL)
