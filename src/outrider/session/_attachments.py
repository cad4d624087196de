"""Owns what goes along with a prompt: images and documents, from files, bytes, text or an address.

Does not know the rest of a prompt. What a file is, its bytes tell; its name alone never does.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outrider.errors import UsageError
from outrider.wire import DocumentBlock, ImageBlock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
PDF: Final = "application/pdf"
TEXT: Final = "text/plain"

# The API takes requests of up to 32 MB, in which bytes are written as base64: four characters for three.
_MOST_TEXT: Final = 32 * 1024 * 1024
_MOST_BYTES: Final = _MOST_TEXT // 4 * 3


def image(source: str | PathLike[str] | bytes, *, media_type: str | None = None) -> ImageBlock:
    """An image to send: a file, its bytes, or the address (`https://…`) that the API is to load it from.

    PNG, JPEG, GIF and WebP are told by their first bytes, whatever the file is called; `media_type` is for
    those that cannot be told. Raises `UsageError` for anything else.
    """
    if isinstance(source, str) and _is_address(source):
        return ImageBlock({"type": "url", "url": source})
    data, name = (source, "The image") if isinstance(source, bytes) else _read(source)
    return _image(data, _media_type(data, name, media_type, IMAGE_TYPES))


def document(
    source: str | PathLike[str] | bytes, *, title: str | None = None, context: str | None = None
) -> DocumentBlock:
    """A document to send: a file (`Path`), its bytes, a text, or the address (`https://…`) of a PDF.

    `title` is what the model knows it by, for a file its name unless another is given; `context`, what the
    model should know about it. Raises `UsageError` for what is neither PDF nor text.
    """
    if isinstance(source, str):
        if _is_address(source):
            return DocumentBlock({"type": "url", "url": source}, title, context)
        _refuse_file_name(source)
        return _text_document(source, "The document", title, context)
    if isinstance(source, bytes):
        data, name = source, "The document"
    else:
        data, name = _read(source)
        title = Path(source).name if title is None else title
    return _document(data, _media_type(data, name, None, (PDF, TEXT)), name, title, context)


def file_block(path: Path) -> ImageBlock | DocumentBlock:
    """A file to send, as the block that its content asks for. Raises `UsageError` if there is none."""
    data, name = _read(path)
    found = _media_type(data, name, None, (*IMAGE_TYPES, PDF, TEXT))
    return _image(data, found) if found in IMAGE_TYPES else _document(data, found, name, path.name, None)


def _is_address(source: str) -> bool:
    return source.startswith(("https://", "http://"))


def _refuse_file_name(text: str) -> None:
    """A text that names a file is not what it says: the name would be sent in place of the file."""
    try:
        is_name = len(text) < 1024 and (text.lower().endswith(".pdf") or Path(text).is_file())
    except (OSError, ValueError):
        return
    if is_name:
        raise UsageError(
            f"`document` got the text {text!r}, which looks like the name of a file",
            hint=f"Give `Path({text!r})` to send the file.",
        )


def _read(path: str | PathLike[str]) -> tuple[bytes, str]:
    """A file's content, and what to call it in errors."""
    file = Path(path)
    name = f"The file {str(file)!r}"
    try:
        if file.is_dir():
            raise UsageError(
                f"{name} is a folder", hint="Name the files in it, or let the agent look into it."
            )
        if not file.exists():
            where = "" if file.is_absolute() else f" in {str(Path.cwd())!r}"
            raise UsageError(
                f"{name} does not exist{where}", hint="Check its name, or give an absolute path."
            )
        if not file.is_file():
            # To read a pipe or a device might never end.
            raise UsageError(f"{name} is no regular file", hint="Copy its content to one, or send the bytes.")
        _refuse_size(file.stat().st_size, _MOST_TEXT, name)
        return file.read_bytes(), name
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{name} cannot be read: {error}", hint="Check its permissions and its name."
        ) from error


def _refuse_size(size: int, most: int, name: str) -> None:
    if size > most:
        raise UsageError(
            f"{name} has {size} bytes, and the API takes no more than {most} in one request",
            hint="Make it smaller, or name its path in the text and let the agent read it.",
        )


def _image(data: bytes, media_type: str) -> ImageBlock:
    _refuse_size(len(data), _MOST_BYTES, "The image")
    return ImageBlock({"type": "base64", "media_type": media_type, "data": _base64(data)})


def _document(
    data: bytes, media_type: str, name: str, title: str | None, context: str | None
) -> DocumentBlock:
    if media_type != PDF:
        return _text_document(_decoded(data) or "", name, title, context)
    _refuse_size(len(data), _MOST_BYTES, name)
    return DocumentBlock({"type": "base64", "media_type": PDF, "data": _base64(data)}, title, context)


def _text_document(text: str, name: str, title: str | None, context: str | None) -> DocumentBlock:
    if not text.strip():
        raise UsageError(f"{name} has no text in it", hint="Send something that has content.")
    _refuse_size(len(text), _MOST_TEXT, name)
    return DocumentBlock({"type": "text", "media_type": TEXT, "data": text}, title, context)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _media_type(data: bytes, name: str, given: str | None, allowed: Sequence[str]) -> str:
    """What the bytes are, one of `allowed`; if they do not tell, what the caller says."""
    if given is not None and given not in allowed:
        raise UsageError(f"`media_type` is {given!r}", hint=f"It can be one of {', '.join(allowed)}.")
    if not data:
        raise UsageError(f"{name} is empty", hint="Send something that has content.")
    found = _sniffed(data)
    if given is not None and found in (None, TEXT, given):
        return given
    if found is None or given is not None or found not in allowed:
        is_what = f"begins with {data[:8]!r}" if found is None else f"is {found}"
        expected = f"`media_type` {given!r}" if given is not None else ", ".join(allowed)
        raise UsageError(
            f"{name} {is_what}, and not {expected}",
            hint="Convert it, or name its path in the text and let the agent read it.",
        )
    return found


def _sniffed(data: bytes) -> str | None:
    """What the bytes are by their beginning; text if all of them can be read as such."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    # Readers of PDF allow other bytes before it.
    if b"%PDF-" in data[:1024]:
        return PDF
    return None if _decoded(data) is None else TEXT


def _decoded(data: bytes) -> str | None:
    """The bytes as text; None if they are none."""
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
