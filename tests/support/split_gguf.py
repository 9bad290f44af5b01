"""Models in several files, as llama.cpp's gguf-split writes them."""

from __future__ import annotations

from pathlib import Path

import gguf


def split(file: Path, folder: Path) -> list[Path]:
    """``file`` as a set of two, the way llama.cpp's gguf-split writes it: all tensors in the second part."""
    folder.mkdir(parents=True, exist_ok=True)
    reader = gguf.GGUFReader(file)
    parts = [folder / f"big-F32-0000{number}-of-00002.gguf" for number in (1, 2)]
    for number, part in enumerate(parts):
        writer = gguf.GGUFWriter(str(part), "llama")
        if number == 0:
            for field in reader.fields.values():
                if field.name.startswith(("GGUF.", "general.architecture")):
                    continue
                kind = field.types[0]
                if kind is gguf.GGUFValueType.ARRAY:
                    writer.add_array(field.name, field.contents())
                else:
                    writer.add_key_value(field.name, field.contents(), kind)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in reader.tensors if number == 1 else []:
            writer.add_tensor(tensor.name, tensor.data)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return parts
