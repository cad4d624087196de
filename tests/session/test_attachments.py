"""Images and documents are known by their bytes, and what cannot be sent is refused with a next step."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from outrider.errors import UsageError
from outrider.session import _prompts as _attachments
from outrider.session import document, image
from outrider.session._prompts import file_block
from outrider.wire import DocumentBlock, ImageBlock

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
JPEG = b"\xff\xd8\xff\xe0" + bytes(20)
GIF = b"GIF89a" + bytes(20)
WEBP = b"RIFF\x10\x00\x00\x00WEBPVP8 " + bytes(20)
PDF = b"%PDF-1.7\n" + b"\xe2\xe3\xcf\xd3"
TEXT = "naïve\nand so on".encode()
ZIP = b"PK\x03\x04" + bytes(20)

IMAGES = {"image/png": PNG, "image/jpeg": JPEG, "image/gif": GIF, "image/webp": WEBP}


def encoded(media_type: str, data: bytes) -> dict[str, str]:
    return {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}


@pytest.mark.parametrize("media_type", IMAGES)
@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a", "a.pdf"])
def test_an_image_is_what_its_bytes_are(tmp_path: Path, media_type: str, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(IMAGES[media_type])
    wanted = ImageBlock(encoded(media_type, IMAGES[media_type]))
    assert image(path) == image(str(path)) == image(IMAGES[media_type]) == file_block(path) == wanted


def test_an_image_may_be_at_an_address() -> None:
    assert image("https://x.org/a.png") == ImageBlock({"type": "url", "url": "https://x.org/a.png"})


def test_an_image_that_cannot_be_told_is_what_the_caller_says() -> None:
    assert image(b"\x00\x01\x02", media_type="image/png").source["media_type"] == "image/png"
    assert image(PNG, media_type="image/png").source["media_type"] == "image/png"


@pytest.mark.parametrize("data", [PDF, b"\0\0%PDF-1.4" + bytes(9)], ids=["pdf", "bytes before it"])
def test_a_pdf_is_a_document(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "report.final"
    path.write_bytes(data)
    block = DocumentBlock(encoded("application/pdf", data), "report.final")
    assert document(path) == file_block(path) == block
    assert document(path, title="T", context="C") == DocumentBlock(block.source, "T", "C")
    assert document(data) == DocumentBlock(block.source)


@pytest.mark.parametrize(
    "data, text",
    [
        (TEXT, "naïve\nand so on"),
        ("\ufeffnaïve".encode(), "naïve"),
        ("naïve".encode("utf-16"), "naïve"),
        (b"def f(): ...", "def f(): ..."),
    ],
    ids=["utf-8", "with a mark", "utf-16", "code"],
)
def test_text_is_a_document_under_the_name_of_its_file(tmp_path: Path, data: bytes, text: str) -> None:
    path = tmp_path / "notes.md"
    path.write_bytes(data)
    block = DocumentBlock({"type": "text", "media_type": "text/plain", "data": text}, "notes.md")
    assert document(path) == file_block(path) == block
    assert document(data, title="notes.md") == block
    assert document(text, title="notes.md") == block


def test_a_document_may_be_at_an_address() -> None:
    block = document("https://x.org/a.pdf", title="A")
    assert block == DocumentBlock({"type": "url", "url": "https://x.org/a.pdf"}, "A")


@pytest.mark.parametrize("name", ["report.pdf", "REPORT.PDF", "here.txt"])
def test_the_name_of_a_file_is_not_taken_for_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "here.txt").write_bytes(TEXT)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=rf"{name!r}.*Give `Path\({name!r}\)`"):
        document(name)


def test_text_that_cannot_be_a_name_is_text() -> None:
    assert document("nul \0 byte").source["data"] == "nul \0 byte"
    assert document("half \ud800").source["data"] == "half \ud800"
    assert document("x" * 500).source["data"] == "x" * 500
    assert document("x" * 5000 + ".pdf").source["data"].endswith(".pdf")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "blank.txt").write_bytes(b" \n")
    (tmp_path / "a.zip").write_bytes(ZIP)
    (tmp_path / "latin.txt").write_bytes("naïve".encode("latin-1"))
    (tmp_path / "fake.png").write_bytes(TEXT)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.mark.parametrize(
    "make, name, words",
    [
        (file_block, "missing.png", ("missing.png", "does not exist", "Check its name")),
        (file_block, "folder", ("is a folder", "Name the files in it")),
        (file_block, "pipe", ("not a regular file", "send the bytes")),
        (file_block, "empty.txt", ("is empty", "has content")),
        (file_block, "blank.txt", ("has no text in it", "has content")),
        (file_block, "a.zip", ("begins with b'PK", "image/png", "application/pdf", "text/plain", "its path")),
        (document, "latin.txt", ("begins with b'na", "text/plain")),
        (image, "fake.png", ("is text/plain, and not image/png", "Convert it")),
        (image, "a.zip", ("begins with b'PK", "Convert it")),
        (document, "a.zip", ("and not application/pdf, text/plain", "Convert it")),
        (file_block, "nul\0name", ("its name",)),
    ],
)
def test_a_file_that_cannot_be_sent_is_named(
    files: Path, make: Any, name: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError) as caught:
        make(files / name)
    for word in words:
        assert word in str(caught.value)
    assert repr(str(files / name)) in str(caught.value)


def test_a_path_is_taken_from_the_folder_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=f"'a.png' does not exist in {str(tmp_path)!r}"):
        image("a.png")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_bytes(TEXT)
    path.chmod(0)
    with pytest.raises(UsageError, match="cannot be read"):
        document(path)


def test_a_file_that_fails_while_it_is_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path) -> bytes:
        raise OSError(5, "Input/output error")

    path = tmp_path / "bad.txt"
    path.write_bytes(TEXT)
    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(UsageError, match=r"bad\.txt' cannot be read: .*Input/output error") as caught:
        document(path)
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize(
    "given, words",
    [
        ("image/tiff", "`media_type` is 'image/tiff'. It can be one of image/png"),
        ("image/gif", "The image is image/png, and not `media_type` 'image/gif'"),
    ],
)
def test_a_media_type_that_cannot_be_is_refused(given: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        image(PNG, media_type=given)
    assert words in str(caught.value)


def test_no_bytes_are_no_image() -> None:
    with pytest.raises(UsageError, match="The image is empty"):
        image(b"")
    with pytest.raises(UsageError, match="The document is empty"):
        document(b"")
    with pytest.raises(UsageError, match="The document has no text in it"):
        document(" ")


def test_what_is_too_large_for_a_request_is_not_even_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "huge.txt"
    with path.open("wb") as file:
        file.truncate(32 * 1024 * 1024 + 1)
    monkeypatch.setattr(Path, "read_bytes", None)
    with pytest.raises(UsageError, match=r"huge\.txt' has 33554433 bytes, .* 33554432 .* smaller"):
        file_block(path)


def test_bytes_are_larger_in_a_request_than_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_attachments, "_MOST_BYTES", 24)
    assert image(PNG[:24]).source["type"] == "base64"
    with pytest.raises(UsageError, match="The image has 28 bytes"):
        image(PNG)
    with pytest.raises(UsageError, match="The document has 25 bytes"):
        document(PDF + bytes(12))
