"""Owns the tool `Read` of the simulated agent: text with numbers, images, notebooks.

Does not read PDF files, and does not count tokens.
"""

from __future__ import annotations

import base64
import errno
import json
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outrider.testing._simulator.tools.files import read_text
from outrider.testing._simulator.tools.results import Unusable, WentWrong, kilobytes, system_error
from outrider.testing._simulator.world import Outcome
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.tools.files import Paths

__all__ = ["Reader"]

_LARGEST: Final = 256 * 1024
_IMAGES: Final = frozenset([".png", ".jpg", ".jpeg", ".gif", ".webp"])
_BINARY: Final = re.compile(
    r"\.(7z|a|avi|bin|bmp|bz2|class|dat|db|dll|dmg|docx?|dylib|eot|exe|flac|gz|ico|iso|jar|mkv|mov|mp3|mp4|o|obj|"
    r"ogg|otf|pptx?|pyc|rar|so|sqlite|tar|tgz|tiff?|ttf|wasm|wav|webm|woff2?|xlsx?|xz|zip)"
)
_NOT_WRITABLE: Final = (
    " Edit and Write will refuse it: change it with a shell command that keeps its encoding, or ask the user "
    "whether to convert it to UTF-8.]"
)
_DAMAGED: Final = (
    "\n\n[This file is not valid UTF-8: it uses a legacy encoding such as Windows-1252, Shift-JIS or GBK, or "
    "it is binary. Its undecodable bytes show above as U+FFFD." + _NOT_WRITABLE
)
_HAS_NUL: Final = (
    "\n\n[This file has NUL bytes in its first 8 KB: binary data, UTF-16/UTF-32 without a byte-order mark, "
    "or text with embedded NULs." + _NOT_WRITABLE
)


class Reader:
    """Reads files."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def check(self, given: JsonObject) -> None:
        path = self._paths.find(given["file_path"])
        if path.parts[1:2] in (("dev",), ("proc",)):
            raise Unusable(
                f"Cannot read '{given['file_path']}': this path names a device or process file that this "
                "tool does not read."
            )
        if _BINARY.fullmatch(path.suffix.lower()):
            raise Unusable(
                f"This tool cannot read binary files. The file appears to be a binary {path.suffix.lower()} "
                "file. Use a skill for this file type if one is available, or a shell command or script that "
                "can read the format."
            )

    def read(self, given: JsonObject) -> Outcome:
        self.check(given)
        path = self._paths.find(given["file_path"])
        try:
            raw = path.read_bytes()
        except IsADirectoryError:
            raise WentWrong(f"EISDIR: illegal operation on a directory, read '{path}'") from None
        except FileNotFoundError:
            raise WentWrong(self._paths.missing(path)) from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise WentWrong(
                    f"Refusing to read {path}: where it leads on disk could not be determined (a link on the "
                    "way could not be examined, or the links do not resolve)."
                ) from error
            raise WentWrong(system_error(error, path)) from error
        kind = path.suffix.lower()
        if kind in _IMAGES:
            return _image(path, raw)
        if kind == ".ipynb":
            return _notebook(given["file_path"], raw)
        if kind == ".pdf":
            raise WentWrong("The simulated agent does not read PDF files.")
        return self._text(given, path, raw)

    def _text(self, given: JsonObject, path: Path, raw: bytes) -> Outcome:
        offset: int = given.get("offset", 1)
        offset = 1 if offset < 0 else offset
        limit: int | None = given.get("limit") or None
        is_whole = "offset" not in given and limit is None
        if is_whole and len(raw) > _LARGEST and not given.get("allow_large"):
            raise WentWrong(
                f"File content ({kilobytes(len(raw))}) exceeds maximum allowed size ({kilobytes(_LARGEST)}). "
                "Use offset and limit parameters to read specific portions of the file, or search for "
                "specific content instead of reading the whole file. To read it anyway, up to what still "
                "fits in your context, call Read again with allow_large: true — only if you genuinely need "
                "all of it or the user asked for the whole file."
            )
        file = read_text(raw)
        lines = file.text.split("\n")
        first = max(offset - 1, 0)
        shown = lines[first : None if limit is None else first + limit]
        if len(shown) == len(lines):
            self._paths.saw(path, raw)
        else:
            self._paths.forget(path)
        content = "\n".join(shown)
        detail: JsonObject = {
            "filePath": given["file_path"],
            "content": content,
            "numLines": len(shown),
            "startLine": offset,
            "totalLines": len(lines),
        }
        if not file.text:
            told = _reminder("the file exists but the contents are empty.")
        elif not shown:
            told = _reminder(
                f"the file exists but is shorter than the provided offset ({offset}). "
                f"The file has {len(lines)} lines."
            )
        else:
            told = "\n".join(f"{number}\t{line}" for number, line in enumerate(shown, offset))
            told += _HAS_NUL if file.has_nul else _DAMAGED if file.is_damaged else ""
        return Outcome(content=told, detail={"type": "text", "file": detail})


def _reminder(text: str) -> str:
    return f"<system-reminder>Warning: {text}</system-reminder>"


def _image(path: Path, raw: bytes) -> Outcome:
    kind = _image_type(raw)
    if kind is None:
        start = raw[:16].hex(" ")
        raise WentWrong(
            "File has an image extension but its content is not a valid PNG/JPEG/GIF/WebP. Detected: "
            f"unrecognized bytes (hex: {start}). This usually means a download saved an error/login page "
            f'instead of the image. Use `file "{path}"` to confirm, or read it as text with Bash '
            "(e.g. `head -c 500`)."
        )
    data = base64.b64encode(raw).decode("ascii")
    file: JsonObject = {"base64": data, "type": kind, "originalSize": len(raw)}
    if size := _image_size(raw, kind):
        width, height = size
        file["dimensions"] = {
            "originalWidth": width,
            "originalHeight": height,
            "displayWidth": width,
            "displayHeight": height,
        }
    source: JsonObject = {"type": "base64", "data": data, "media_type": kind}
    return Outcome(content=[{"type": "image", "source": source}], detail={"type": "image", "file": file})


def _image_type(raw: bytes) -> str | None:
    if raw.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if raw.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if raw.startswith(b"GIF8"):
        return "image/gif"
    return "image/webp" if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP" else None


def _image_size(raw: bytes, kind: str) -> tuple[int, int] | None:
    try:
        if kind == "image/png":
            width, height = struct.unpack(">II", raw[16:24])
            return width, height
        if kind == "image/gif":
            width, height = struct.unpack("<HH", raw[6:10])
            return width, height
    except struct.error:
        return None
    return None


def _notebook(path: str, raw: bytes) -> Outcome:
    try:
        notebook = json.loads(raw)
        language = notebook.get("metadata", {}).get("language_info", {}).get("name", "python")
        cells: list[JsonObject] = []
        blocks: list[JsonObject] = []
        for index, cell in enumerate(notebook["cells"]):
            source = "".join(cell["source"])
            name = cell.get("id", f"cell-{index}")
            is_code = cell["cell_type"] == "code"
            shown: JsonObject = {"cellType": cell["cell_type"], "source": source, "cell_id": name}
            cells.append({**shown, "language": language} if is_code else shown)
            prefix = "" if is_code else f"<cell_type>{cell['cell_type']}</cell_type>"
            blocks.append({"text": f'<cell id="{name}">{prefix}{source}</cell id="{name}">', "type": "text"})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WentWrong(f"Notebook is not valid: {error}") from error
    return Outcome(content=blocks, detail={"type": "notebook", "file": {"filePath": path, "cells": cells}})
