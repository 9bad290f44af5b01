"""The settings in force, and changing them: written to the file at once, in force at the next start.

A value that came from the command line or the environment goes on winning over the file, and the view says so.
"""

from __future__ import annotations

import asyncio

from localllm.core.config import Settings
from localllm.core.control import ConfigChange, ConfigView
from localllm.core.errors import ConfigError
from localllm.settings.load import LoadedSettings, load_settings
from localllm.settings.paths import Paths
from localllm.settings.write import write_setting


class Configuration:
    """``settings`` is what this service was started with and stays so; ``view`` follows the file."""

    def __init__(self, paths: Paths, loaded: LoadedSettings) -> None:
        self._paths = paths
        self._loaded = loaded
        # masked ones are left out: a key typed on a command line cannot be reconstructed, nor should it be
        self._typed = {
            entry.key: entry.value
            for entry in loaded.entries
            if entry.source == "command line" and not entry.secret
        }

    @property
    def settings(self) -> Settings:
        return self._loaded.settings

    @property
    def problems(self) -> tuple[ConfigError, ...]:
        return self._loaded.problems

    async def view(self) -> ConfigView:
        """Every setting with its value and where it came from, as the file is now."""
        return (await asyncio.to_thread(self._read)).view()

    async def change(self, change: ConfigChange) -> ConfigView:
        """Write one setting.

        Raises:
            ConfigUnknownKey, ConfigInvalid: nothing was written.
        """
        await asyncio.to_thread(write_setting, self._paths, change.key, change.value)
        return await self.view()

    def _read(self) -> LoadedSettings:
        return load_settings(self._paths, overrides=self._typed, tolerant=True)
