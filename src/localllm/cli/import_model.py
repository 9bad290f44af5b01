"""``localllm import``: take a GGUF file into the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from localllm.cli.diagnostics import say
from localllm.cli.output import Result, emit
from localllm.cli.progress import ProgressLine
from localllm.cli.session import Remote, call, json_option, remote_options

if TYPE_CHECKING:
    from typing import TextIO

    from localllm.client.client import Client
    from localllm.core.control import ImportRequest, ModelDetail


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME[:QUANT]", help="What to call it; by default, what the file is called.")
@click.option(
    "--link", "mode", flag_value="link", help="Hard-link the file: no second copy (same disk only)."
)
@click.option(
    "--reference", "mode", flag_value="reference", help="Leave the file where it is, and remember it."
)
@click.option(
    "--template",
    type=click.File("r", encoding="utf-8"),
    metavar="FILE",
    help="A chat template (Jinja) to use instead of the file's own.",
)
@click.option(
    "--stop",
    multiple=True,
    metavar="TEXT",
    help="A text that always ends an answer (\\n is a line end); repeatable.",
)
@json_option
@remote_options
def command(
    file: Path,
    name: str | None,
    mode: str | None,
    template: TextIO | None,
    stop: tuple[str, ...],
    as_json: bool,
    remote: Remote,
) -> None:
    """Take FILE, a GGUF model, into the store: by copy, unless you say --link or --reference.

    Name the first part of a split model (…-00001-of-00003.gguf); the others come along. With --host, FILE is a path
    on the machine of that service.
    """
    import msgspec

    from localllm.core.control import ImportRequest

    if remote.host is None:
        file = _readable(file)
    request = ImportRequest(
        path=str(file),
        name=name,
        chat_template=template.read() if template else None,
        stop=tuple(text.replace("\\n", "\n").replace("\\t", "\t") for text in stop),
    )
    if mode is not None:
        request = msgspec.structs.replace(request, mode=mode)
    detail = call(remote, lambda client: import_showing_progress(client, request))
    text = f"Imported {detail.summary.name}."
    emit(Result("model", detail, lambda: iter([text])), as_json=as_json)
    if not as_json:
        say(f"Ask it something: localllm run {detail.summary.name} 'Hello'")


def _readable(file: Path) -> Path:
    """The absolute path, looked at before a service is started for it. Raises NotFound and the like."""
    from localllm.hub.blobs import open_regular

    file = file.expanduser().absolute()
    with open_regular(file):
        return file


async def import_showing_progress(client: Client, request: ImportRequest) -> ModelDetail:
    """Import, with a line on stderr that says how far it is; the model that came of it.

    Raises what ended the import: GGUFError, Conflict, DiskFull …
    """
    from localllm.core.control import TaskPhase
    from localllm.core.errors import from_code
    from localllm.core.units import format_bytes

    with ProgressLine() as line:
        line.show("Reading the header")
        task = await client.import_model(request)
        async for task in client.follow_task(task):  # noqa: B020 - each step is the task, further on
            fraction = task.done / task.total if task.total else None
            line.show(f"Importing {format_bytes(task.total or 0)}", fraction)
    if task.phase is not TaskPhase.DONE:
        raise from_code(task.error_code or "cancelled", task.error or "The import was cancelled.")
    return await client.model(task.result or request.name or "")
