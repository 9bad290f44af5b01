"""The control namespace ``/localllm/*``: what the terminal app and the command line speak; wire spec in core/control."""

from localllm.api.control.table import routes

__all__ = ["routes"]
