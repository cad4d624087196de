"""Images, sounds, resources and links: from bytes, paths and URLs to what MCP has for them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest

from outrider.errors import UsageError
from outrider.handlers import Audio, Image, Resource, ResourceLink, ToolResult
from outrider.handlers._tools.content import bytes_content, media_type
from tests.cases import every_case

PNG = b"\x89PNG\r\n\x1a\n" + b"rest"
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt "


@every_case(
    "data, kind",
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF87a..", "image/gif"),
        (b"GIF89a..", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (WAV, "audio/wav"),
        (b"ID3\x04", "audio/mpeg"),
        (b"\xff\xfb\x90", "audio/mpeg"),
        (b"OggS\0", "audio/ogg"),
        (b"fLaC\0", "audio/flac"),
        (b"\0\0\0\x20ftypM4A ", "audio/mp4"),
        (b"RIFF\0\0\0\0AVI LIST", None),
        (b"\0\0\0\x20ftypisom", None),
        (b"%PDF-1.7", None),
        (b"text", None),
        (b"", None),
    ],
    ids=str,
)
def test_the_first_bytes_tell_what_it_is(data: bytes, kind: str | None) -> None:
    assert media_type(data) == kind


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_an_image_from_bytes(wrap: Any) -> None:
    wire = Image(wrap(PNG)).to_wire()
    assert wire == {"type": "image", "data": b64encode(PNG).decode(), "mimeType": "image/png"}


def test_from_a_path_and_a_file_url(tmp_path: Path) -> None:
    path = tmp_path / "a b.png"
    path.write_bytes(PNG)
    for source in (path, str(path), path.as_uri()):
        image = Image(source)
        assert (image.data, image.mime_type) == (PNG, "image/png")
        assert repr(image) == "<Image image/png, 12 bytes>"


def test_from_a_data_url() -> None:
    audio = Audio(f"data:audio/wav;base64,{b64encode(WAV).decode()}")
    assert (audio.data, audio.mime_type) == (WAV, "audio/wav")
    broken = b64encode(PNG).decode().replace("K", "K\n ")
    assert Image(f"data:image/png;base64,{broken}").data == PNG
    assert Image("data:image/svg+xml,%3Csvg/%3E").data == b"<svg/>"


def test_the_name_of_a_file_tells_what_its_bytes_do_not(tmp_path: Path) -> None:
    path = tmp_path / "a.bmp"
    path.write_bytes(b"BM")
    assert Image(path).mime_type == "image/bmp"


def test_the_type_that_is_given_wins() -> None:
    assert Image(PNG, "image/apng").mime_type == "image/apng"


@every_case(
    "kind, given, said",
    [
        (Image, (b"what",), "unknown type"),
        (Image, (WAV,), "does not look like an image"),
        (Audio, (PNG,), "does not look like an audio"),
        (Image, (PNG, "text/plain"), "text/plain"),
        (Image, ("https://example.com/a.png",), "ResourceLink"),
        (Image, ("data:image/png",), "comma"),
        (Image, ("data:image/png;base64,%%%",), "not base64"),
        (Image, ("data:image/png;base64,abc",), "not base64"),
        (Image, (b"", "image/png"), "image has no bytes"),
        (Audio, ("data:audio/wav;base64,",), "audio has no bytes"),
    ],
)
def test_what_it_cannot_be_is_refused(kind: Any, given: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        kind(*given)


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    for make in (Image, Resource):
        with pytest.raises(FileNotFoundError):
            make(tmp_path / "none.png")


def test_a_resource_with_text() -> None:
    assert Resource("db:7", "row", "text/plain").to_wire() == {
        "type": "resource",
        "resource": {"uri": "db:7", "mimeType": "text/plain", "text": "row"},
    }


def test_a_resource_with_bytes() -> None:
    resource = Resource("db:7", b"\0\1")
    assert resource.to_wire()["resource"] == {"uri": "db:7", "blob": "AAE="}
    assert repr(resource) == "<Resource db:7, 2 bytes>"
    with pytest.raises(TypeError):
        Resource("db:7", 5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "data, key", [(b"plain", "text"), ("ä".encode(), "text"), (b"\xff", "blob"), (b"a\0", "blob")]
)
def test_a_file_is_text_if_it_can_be(tmp_path: Path, data: bytes, key: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(data)
    resource = Resource(path).to_wire()["resource"]
    assert resource["uri"] == path.as_uri()
    assert resource["mimeType"] == "text/plain"
    content = resource[key]
    assert (content.encode() if key == "text" else b64decode(content)) == data


def test_a_link_to_a_page() -> None:
    link = ResourceLink(
        "https://example.com/a/b.pdf?x=1", title="T", description="D", mime_type="a/b", size=3
    )
    assert link.to_wire() == {
        "type": "resource_link",
        "uri": "https://example.com/a/b.pdf?x=1",
        "name": "b.pdf",
        "title": "T",
        "description": "D",
        "mimeType": "a/b",
        "size": 3,
    }
    assert repr(link) == "<ResourceLink https://example.com/a/b.pdf?x=1>"


def test_a_link_to_a_file_that_need_not_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ResourceLink("a.txt").to_wire() == {
        "type": "resource_link",
        "uri": (tmp_path / "a.txt").as_uri(),
        "name": "a.txt",
    }
    assert ResourceLink(Path("C:x"), "mine").name == "mine"


def test_a_link_without_a_path_is_named_by_itself() -> None:
    assert ResourceLink("db:").name == "db:"


@pytest.mark.parametrize(
    "data, kind", [(PNG, "image"), (WAV, "audio"), (b"%PDF", "resource"), (b"", "resource")]
)
def test_bytes_of_any_kind_have_a_form(data: bytes, kind: str) -> None:
    content = bytes_content(data)
    assert content["type"] == kind
    body = content["resource"]["blob"] if kind == "resource" else content["data"]
    assert b64decode(body) == data


def test_a_result_shows_what_it_has() -> None:
    assert repr(ToolResult("a", is_error=True)) == "ToolResult(content='a', is_error=True)"
