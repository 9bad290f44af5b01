"""``python -m localllm``: the same as the command ``localllm``."""

from localllm.cli.main import run

if __name__ == "__main__":
    run()
