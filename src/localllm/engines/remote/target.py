"""Where a remote is, how it is spoken to, and what its user says that it can do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from localllm.core.errors import EngineUnavailable

MaxTokensField = Literal["max_tokens", "max_completion_tokens"]


class Target(Struct, frozen=True, kw_only=True):
    """``base_url`` ends in the version (``https://host/v1``). ``models`` maps our names to the remote's.

    The key comes from the environment variable ``key_env``, else from the file ``key_file``, else is ``key``. What is
    None is asked of the remote (``context_length``, ``capabilities``).
    """

    name: str
    base_url: str
    key: str | None = None
    key_env: str | None = None
    key_file: str | None = None
    headers: dict[str, str] = {}
    models: dict[str, str] = {}
    context_length: int | None = None
    capabilities: tuple[str, ...] | None = None
    parallel: int = 8
    max_tokens_field: MaxTokensField = "max_tokens"
    connect_timeout_s: float = 5.0
    first_token_timeout_s: float = 300.0
    token_timeout_s: float = 60.0

    def secret(self, env: Mapping[str, str] | None = None) -> str | None:
        """The key, read anew each time, so that a changed one needs no restart.

        Raises:
            EngineUnavailable: the variable or file that should hold it does not.
        """
        if self.key_env is not None:
            value = (os.environ if env is None else env).get(self.key_env, "").strip()
            if not value:
                raise EngineUnavailable(
                    f"The key of the remote {self.name!r} is not there.",
                    hint=f"Set the environment variable {self.key_env} for the service.",
                )
            return value
        if self.key_file is not None:
            try:
                return Path(self.key_file).expanduser().read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise EngineUnavailable(
                    f"The key file of the remote {self.name!r} cannot be read: {error}.",
                    hint=f"Correct remotes.{self.name}.key_file.",
                ) from error
        return self.key
