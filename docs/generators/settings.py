"""The page of settings, read off ``core.config``."""

from __future__ import annotations

from collections.abc import Iterator

from generators.markdown import HEAD
from localllm.settings.load import default_text
from localllm.settings.schema import all_settings, sections


def page() -> Iterator[str]:
    yield HEAD
    yield "# Settings\n"
    yield "A value typed on the command line beats the environment variable, which beats `config.toml`, which beats the"
    yield "default. `localllm config path` prints where the file is, `localllm config show` every value and where it came"
    yield "from, `localllm config set KEY VALUE` changes one and keeps the file's comments.\n"
    yield '```toml\n[server]\nport = 11500\n\n[engine]\nkv_type = "q8_0"\n```'
    for section in sections():
        yield f"\n## {section}\n"
        for setting in all_settings().values():
            if setting.section != section:
                continue
            yield f"### {setting.key}\n"
            yield f"{setting.help}.\n"
            yield f"- takes: {setting.expectation()}{', or nothing' if setting.optional else ''}"
            yield f"- default: `{default_text(setting)}`"
            yield f"- variable: `{setting.variable}`"
            yield f"- applies: {'when the service starts again' if setting.needs_restart else 'when the app starts again'}\n"
