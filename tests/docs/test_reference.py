"""The documentation says what the code does: generated pages are current, and every link leads somewhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "localllm"
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])


def test_the_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"run: python docs/generate.py\n{done.stdout}{done.stderr}"


def error_codes() -> dict[str, Path]:
    """Every ``code = "…"`` in the body of a class whose bases are all classes: the errors of the tree, by reading."""
    codes: dict[str, Path] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.ClassDef) or not node.bases:
                continue
            for line in node.body:
                if (
                    isinstance(line, ast.Assign | ast.AnnAssign)
                    and isinstance(line.value, ast.Constant)
                    and isinstance(line.value.value, str)
                    and any(isinstance(t, ast.Name) and t.id == "code" for t in _targets(line))
                ):
                    codes[line.value.value] = path
    return codes


def _targets(line: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return line.targets if isinstance(line, ast.Assign) else [line.target]


def test_every_error_code_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text("utf-8")
    codes = error_codes()
    assert len(codes) > 50
    missing = {code: str(path) for code, path in codes.items() if f"| `{code}` |" not in page}
    assert missing == {}, "name the module in WITH_ERRORS of docs/generators/errors.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_inside_the_documentation_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked), target


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings}


def shown_commands() -> set[tuple[str, str]]:
    """(page, verb) of every ``localllm VERB`` that a reader is told to type: in code blocks and code spans."""
    found: set[tuple[str, str]] = set()
    for page in PAGES:
        text = page.read_text("utf-8")
        blocks = re.findall(r"```\n(.*?)```", text, flags=re.DOTALL)
        spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        for code in (*blocks, *spans):
            verbs = re.findall(
                r"(?:^|[|;&$] ?|ssh \S+ |exec localllm )localllm ([a-z][a-z-]+)", code, re.MULTILINE
            )
            found |= {(page.name, verb) for verb in verbs}
    return found


def test_commands_in_the_documentation_exist() -> None:
    from localllm.cli.main import VERBS

    known = {name for group in VERBS.values() for name in group}
    shown = shown_commands()
    assert {"run", "config", "import"} <= {verb for _, verb in shown}
    assert {(page, verb) for page, verb in shown if verb not in known} == set()
