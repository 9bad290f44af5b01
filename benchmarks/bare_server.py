"""llama.cpp's own server from the xllamacpp wheel, with nothing of localllm around it: the other yardstick.

Prints its address as one JSON line, then serves until its standard input ends.
"""

from __future__ import annotations

import argparse
import json
import sys

import xllamacpp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--context-length", type=int, default=4096)
    parser.add_argument("--parallel", type=int, default=8)
    options = parser.parse_args()
    parameters = xllamacpp.CommonParams()
    parameters.model.path = options.model
    parameters.n_parallel = options.parallel
    parameters.n_ctx = options.context_length * options.parallel
    parameters.cpuparams.n_threads = options.threads
    parameters.cpuparams_batch.n_threads = options.threads
    parameters.fit_params = False
    parameters.port = 0
    parameters.verbosity = 0
    server = xllamacpp.Server(parameters)
    print(json.dumps({"address": server.listening_address}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
