"""Change one setting in ``config.toml``, keeping every comment and the order of the file.

The new file is complete before it takes the old one's name (``write_private``), and the old one stays beside it as
``config.toml.bak``. tomlkit takes long to import, so only this module does.
"""

from __future__ import annotations

import shutil
from collections.abc import MutableMapping
from pathlib import Path

import msgspec
import tomlkit

from localllm.core.errors import ConfigInvalid
from localllm.settings.load import parse_toml, read_config_text, unknown_key
from localllm.settings.paths import Paths
from localllm.settings.private import write_private
from localllm.settings.schema import Setting, all_settings, convert


def write_setting(paths: Paths, key: str, value: object) -> None:
    """Set ``key`` to ``value`` (None = back to the default: the line goes). Texts are parsed as on the command line.

    Raises ConfigUnknownKey, ConfigInvalid (a value that does not fit, or a file that is not TOML: it is not
    rewritten, so nothing in it is lost).
    """
    setting = all_settings().get(key)
    if setting is None:
        raise unknown_key(key, "config set")
    checked = None if value is None else _checked(setting, value)
    # whoever keeps the file elsewhere and links to it wants the file changed, not the link replaced
    path = paths.config_file.resolve()
    text = read_config_text(path) or ""
    parse_toml(path, text)
    document = tomlkit.parse(text)
    _put(document, setting, checked)
    _replace(path, tomlkit.dumps(document))


def _checked(setting: Setting, value: object) -> object:
    try:
        converted = convert(setting, value, typed=not isinstance(value, str))
    except msgspec.ValidationError as error:
        raise ConfigInvalid(
            f"{setting.key} must be {setting.expectation()}"
            + ("." if setting.secret else f", not {value!r}."),
            hint=f"{setting.help}.",
            details={"key": setting.key},
        ) from error
    return list(converted) if isinstance(converted, tuple) else converted


def _put(document: tomlkit.TOMLDocument, setting: Setting, value: object) -> None:
    section = document.get(setting.section)
    if section is not None and not isinstance(section, MutableMapping):
        raise ConfigInvalid(
            f"{setting.section!r} is a value in the file, where a section should be.",
            hint=f"Write [{setting.section}] on a line of its own.",
        )
    if value is None:
        if section is not None and setting.name in section:
            del section[setting.name]
        return
    if section is None:
        section = tomlkit.table()
        document[setting.section] = section
    section[setting.name] = value


def _replace(path: Path, text: str) -> None:
    try:
        # a folder that is there already is the person's own and keeps its rights
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.exists():
            shutil.copy2(path, path.with_name(path.name + ".bak"))
        # 0600: server.api_keys lie in it
        write_private(path, text.encode())
    except OSError as error:
        raise ConfigInvalid(
            f"{path} cannot be written: {error.strerror}.",
            hint="Check the folder's owner and the space on its disk.",
        ) from error
