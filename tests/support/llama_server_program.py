"""A ``llama-server`` program for tests, as somebody may have it on PATH: the real server, taking its plan as flags.

It is xllamacpp's server behind llama.cpp's command line, so that the engine's way with a binary is tried on a real
model where no such binary can be had. Flags it does not know are an error, as they are for llama.cpp.
"""

from __future__ import annotations

import argparse
import os
import signal
import stat
import sys
from pathlib import Path


def write_program(path: Path) -> Path:
    """Make ``path`` an executable that runs this module."""
    root = Path(__file__).parents[2]
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{root}" exec "{sys.executable}" -m {__name__} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def main() -> None:
    import xllamacpp

    parser = argparse.ArgumentParser(allow_abbrev=False)
    text = ("model", "host", "cache-type-k", "cache-type-v", "flash-attn", "fit", "chat-template")
    number = (
        *(
            "port",
            "ctx-size",
            "parallel",
            "batch-size",
            "ubatch-size",
            "n-gpu-layers",
            "main-gpu",
            "cache-ram",
        ),
        *("ctx-checkpoints", "threads-http", "verbosity", "threads"),
    )
    for name in text:
        parser.add_argument(f"--{name}")
    for name in number:
        parser.add_argument(f"--{name}", type=int)
    for name in ("jinja", "no-prefill-assistant", "slots", "no-webui"):
        parser.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.port = options.port
    params.api_keys = [os.environ["LLAMA_API_KEY"]]
    params.n_ctx, params.n_parallel = options.ctx_size, options.parallel
    params.n_batch, params.n_ubatch = options.batch_size, options.ubatch_size
    params.n_threads_http, params.verbosity = options.threads_http, options.verbosity
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.fit_params = options.fit != "off"
    params.prefill_assistant = not options.no_prefill_assistant
    params.chat_template = options.chat_template or ""
    params.ui = False
    server = xllamacpp.Server(params)
    print(f"main: server is listening on {server.listening_address}", file=sys.stderr, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
