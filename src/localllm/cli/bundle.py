"""``localllm bundle``, ``unbundle`` and ``export``: a model in files that can be carried away."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localllm.cli.arguments import complete_model
from localllm.cli.output import Result, emit
from localllm.cli.progress import ProgressLine
from localllm.cli.session import Remote, call, json_option, remote_options

if TYPE_CHECKING:
    from localllm.core.control import ImportRequest
    from localllm.hub.bundle import Note


@click.command()
@click.argument("model", shell_complete=complete_model)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@json_option
def bundle(model: str, file: Path | None, as_json: bool) -> None:
    """Write MODEL with all its parts, projector, template and digests to FILE (by default NAME.tar, here)."""
    from localllm.cli.local_store import local_store
    from localllm.hub.bundle import write_bundle

    store = local_store()
    name = store.get(model).name
    target = file or Path(name.replace("/", "-").replace(":", "-") + ".tar")
    with ProgressLine() as line:
        write_bundle(store, name, target, lambda done, total: line.show(f"Writing {target}", done / total))
    text = f"Wrote {name} to {target}. On the other machine: localllm unbundle {target.name}"
    emit(Result("bundle", {"name": name, "file": str(target)}, lambda: iter([text])), as_json=as_json)


@click.command()
@click.argument("model", shell_complete=complete_model)
@click.argument(
    "folder", type=click.Path(path_type=Path, file_okay=False, exists=True), default=Path(), required=False
)
@json_option
def export(model: str, folder: Path, as_json: bool) -> None:
    """Copy the GGUF files of MODEL into FOLDER (by default here), under names that other tools understand."""
    from localllm.cli.local_store import local_store
    from localllm.hub.bundle import export_files

    with ProgressLine() as line:
        files = export_files(
            local_store(), model, folder, lambda done, total: line.show(f"Copying {model}", done / total)
        )
    names = [str(file) for file in files]
    emit(Result("exported", names, lambda: iter(names)), as_json=as_json)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_option
@remote_options
def unbundle(file: Path, as_json: bool, remote: Remote) -> None:
    """Take the model in FILE, written by ``localllm bundle``, into this machine's store."""
    from localllm.cli.import_model import import_showing_progress
    from localllm.cli.local_store import local_store
    from localllm.hub.bundle import read_bundle

    store = local_store()
    store.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    # on the store's disk, so that taking the files in is a hard link
    with tempfile.TemporaryDirectory(prefix=".unbundle-", dir=store.root) as folder:
        with ProgressLine() as line:
            note = read_bundle(
                file, Path(folder), lambda done, total: line.show(f"Unpacking {file.name}", done / total)
            )
        request = _request(note, Path(folder))
        detail = call(remote, lambda client: import_showing_progress(client, request))
    text = f"Unpacked {detail.summary.name}."
    emit(Result("model", detail, lambda: iter([text])), as_json=as_json)


def _request(note: Note, folder: Path) -> ImportRequest:
    from localllm.core.control import ImportRequest

    return ImportRequest(
        path=str(folder / note.files[0].name),
        name=note.name,
        mode="link",
        chat_template=note.chat_template,
        stop=note.stop,
        sampling=note.sampling,
        licence=note.licence,
        source=note.source,
    )
