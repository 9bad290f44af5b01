"""The reference pages and the man page, written from the code that they describe.

    python docs/generate.py            write them
    python docs/generate.py --check    exit 1 and name the pages that are not current

A test runs the check, so a verb, a setting, an error or a wire type cannot change without its page.
"""

from __future__ import annotations

import sys
from pathlib import Path

from generators import clients, commands, control, errors, keys, man, port, settings

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "docs/how-to/clients.md": clients,
    "docs/reference/cli.md": commands,
    "docs/reference/keys.md": keys,
    "docs/reference/settings.md": settings,
    "docs/reference/port.md": port,
    "docs/reference/errors.md": errors,
    "docs/reference/control-api.md": control,
    "packaging/man/localllm.1": man,
}


def main(arguments: list[str]) -> int:
    """Write what is not current, or only name it with ``--check``."""
    check = "--check" in arguments
    stale = []
    for name, module in PAGES.items():
        path, content = ROOT / name, "\n".join(module.page()) + "\n"
        if path.exists() and path.read_text("utf-8") == content:
            continue
        stale.append(name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, "utf-8")
    for name in stale:
        print(f"{'not current' if check else 'written'}: {name}")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
