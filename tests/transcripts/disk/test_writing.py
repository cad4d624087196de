"""What is written where the program keeps its sessions: whole, private, with care for what others write."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from outrider.errors import OptionsError, SessionExists, SessionNotFound, TranscriptError
from outrider.transcripts import Bundle
from outrider.transcripts._disk.files import SessionFile, append, archive, delete, put
from outrider.transcripts._disk.read import Disk, load_bundle
from outrider.wire import JsonObject
from tests.transcripts.keeping import KEY, bundle, put_on_disk
from tests.transcripts.lines import SESSION, prompt
from tests.transcripts.made_up import transcripts

NOTE: JsonObject = {"type": "custom-title", "customTitle": "Ä 🎉", "sessionId": SESSION}
needs_permissions = pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() == 0, reason="the user may write everywhere"
)


def file_at(path: Path) -> SessionFile:
    return SessionFile(session_id=path.stem, project=path.parent.name, path=path)


@pytest.fixture
def file(tmp_path: Path) -> SessionFile:
    return file_at(put_on_disk(tmp_path))


def everything(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


# Adding lines


def test_lines_are_added_at_the_end(file: SessionFile) -> None:
    before = file.path.read_bytes()
    append(file, [NOTE, {"type": "tag", "tag": "x"}])
    lines = file.path.read_bytes().removeprefix(before).decode().splitlines()
    assert [json.loads(line) for line in lines] == [NOTE, {"type": "tag", "tag": "x"}]


def test_no_lines_are_no_change(file: SessionFile) -> None:
    before = file.path.stat().st_mtime_ns
    append(file, [])
    assert file.path.stat().st_mtime_ns == before


def test_half_a_line_at_the_end_does_not_spoil_ours(file: SessionFile) -> None:
    with file.path.open("ab") as stream:
        stream.write(b'{"type":"user","mess')
    append(file, [NOTE])
    *_, half, ours = file.path.read_bytes().splitlines()
    assert half == b'{"type":"user","mess'
    assert json.loads(ours) == NOTE


def test_half_a_line_that_comes_between_does_not_spoil_ours(
    file: SessionFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, halves = os.write, [b'{"type":"us']

    def torn(number: int, data: bytes) -> int:
        # As another writer that is killed in the middle, after ours has looked at the end.
        if halves:
            with file.path.open("ab") as stream:
                stream.write(halves.pop())
        return write(number, data)

    monkeypatch.setattr(os, "write", torn)
    append(file, [NOTE])
    assert json.loads(file.path.read_bytes().splitlines()[-1]) == NOTE


@pytest.mark.parametrize("change", [append, archive, delete], ids=lambda function: function.__name__)
def test_a_session_that_was_deleted_is_not_made_anew(file: SessionFile, change: Callable[..., None]) -> None:
    delete(file)
    arguments = {append: ([NOTE],), archive: (), delete: ()}[change]
    with pytest.raises(SessionNotFound, match=SESSION):
        change(file, *arguments, **({"archived": True} if change is archive else {}))
    assert everything(file.path.parent) == set()


SHORT = """
import resource, sys
from pathlib import Path
from tempfile import TemporaryDirectory
from outrider.errors import TranscriptError
from outrider.transcripts._disk.files import SessionFile
from outrider.transcripts._disk.files import append

path = Path(sys.argv[1])
size = path.stat().st_size + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
try:
    append(SessionFile(session_id="x", project="p", path=path), [{"type": "tag", "tag": "x" * 100}])
except TranscriptError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a limit for files is POSIX")
@pytest.mark.parametrize("room", [0, 1, 40])
def test_a_line_that_has_no_room_leaves_the_next_one_whole(file: SessionFile, room: int) -> None:
    before = file.path.read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", SHORT, str(file.path), str(room)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "could not be written" in done.stdout
    after = file.path.read_bytes()
    assert after.startswith(before)
    assert after.removeprefix(before).strip() == b""
    append(file, [NOTE])
    assert json.loads(file.path.read_bytes().splitlines()[-1]) == NOTE
    assert load_bundle(file).entries[-1] == NOTE


@pytest.mark.skipif(sys.platform == "win32", reason="appending is not atomic there")
def test_no_line_is_lost_or_torn_while_the_program_writes(file: SessionFile) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(file.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stdin is not None
    count = 0
    try:
        assert writer.stdout.readline() == b"ready\n"
        while writer.poll() is None and count < 3000:
            append(file, [{"type": "custom-title", "customTitle": str(count) * 50}])
            count += 1
            if count == 500:
                # It has begun long ago; from here on both write until it is done.
                writer.stdin.close()
        theirs = int(writer.stdout.read())
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    # An empty line does no harm; a long one of theirs may have been seen while it grew.
    entries = [json.loads(line) for line in file.path.read_bytes().splitlines() if line]
    assert [entry["customTitle"] for entry in entries if "customTitle" in entry][1:] == [
        str(number) * 50 for number in range(count)
    ]
    assert [entry["number"] for entry in entries if "number" in entry] == list(range(theirs))


WRITER = """
import json, os, select, sys

number = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
print("ready", flush=True)
count = 0
while count < 1000 or not select.select([sys.stdin], [], [], 0)[0]:
    line = {"type": "user", "number": count, "text": "x" * (count * 7 % 90000)}
    os.write(number, json.dumps(line).encode() + b"\\n")
    count += 1
print(count)
"""


# Archive


def test_the_archive_is_a_note_beside_the_session(file: SessionFile) -> None:
    before = file.path.read_bytes()
    archive(file, archived=True)
    note = file.folder / "archived.json"
    told = json.loads(note.read_bytes())
    assert (told["archived"], told["by"]) == (True, "sdk")
    assert told["at"].endswith("Z")
    archive(file, archived=False)
    assert json.loads(note.read_bytes())["archived"] is False
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    assert file.path.read_bytes() == before
    assert {path.name for path in file.folder.iterdir()} == {"archived.json", "subagents"}


# New sessions


def test_what_is_put_is_what_is_loaded(tmp_path: Path) -> None:
    path = put_on_disk(tmp_path)
    assert load_bundle(file_at(path)) == bundle()
    assert path == tmp_path / "projects" / KEY / f"{SESSION}.jsonl"
    assert Disk(tmp_path).find(SESSION).path == path


@settings(max_examples=30)
@given(transcripts(), transcripts())
def test_whatever_is_put_is_what_is_loaded(entries: list[JsonObject], part: list[JsonObject]) -> None:
    # What has no type is not an entry.
    entries, part = ([entry for entry in some if entry["type"]] for some in (entries, part))
    kept = Bundle(
        session_id=SESSION, project=KEY, entries=entries, parts={"subagents/agent-a": part} if part else {}
    )
    with TemporaryDirectory() as folder:
        path = put(Path(folder), kept, KEY)
        assert load_bundle(file_at(path)) == kept


def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        put_on_disk(tmp_path / "new" / "config")
    finally:
        os.umask(old)
    for path in (tmp_path / "new").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_session_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    path = put_on_disk(tmp_path)
    before = everything(tmp_path), path.read_bytes()
    other = Bundle(session_id=SESSION, project=KEY, entries=[prompt("x")])
    with pytest.raises(SessionExists) as caught:
        put(tmp_path, other, KEY)
    assert caught.value.where == str(path.parent)
    assert (everything(tmp_path), path.read_bytes()) == before


def test_what_is_left_of_a_session_does_not_become_part_of_another(file: SessionFile) -> None:
    file.path.unlink()
    before = everything(file.path.parent)
    other = Bundle(session_id=SESSION, project=KEY, entries=[prompt("x")])
    with pytest.raises(SessionExists, match="what is left"):
        put(file.path.parents[2], other, KEY)
    assert everything(file.path.parent) == before


def test_whoever_takes_the_id_meanwhile_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link
    folder = tmp_path / "projects" / KEY

    def late(source: Path, target: Path) -> None:
        # After we have looked, and put the parts in their place.
        (folder / SESSION / "subagents").mkdir(exist_ok=True)
        (folder / SESSION / "subagents" / "agent-theirs.jsonl").write_text("{}")
        (folder / f"{SESSION}.jsonl").write_text("{}")
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(SessionExists):
        put_on_disk(tmp_path)
    theirs = ["", "/subagents", "/subagents/agent-theirs.jsonl", ".jsonl"]
    assert everything(folder) == {f"{SESSION}{name}" for name in theirs}
    assert (folder / f"{SESSION}.jsonl").read_text() == "{}"


def test_a_file_system_without_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    path = put_on_disk(tmp_path)
    assert load_bundle(file_at(path)) == bundle()
    with pytest.raises(SessionExists):
        put_on_disk(tmp_path)


@pytest.mark.parametrize("step", ["fsync", "link"])
def test_what_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(TranscriptError, match="No space left"):
        put_on_disk(tmp_path)
    assert everything(tmp_path / "projects") == {KEY}


@pytest.mark.parametrize(
    "subpath",
    [
        "../escape",
        "subagents/../../escape",
        "/absolute",
        "C:/drive",
        "subagents\\agent",
        "nul\x00byte",
        "",
        ".",
        "a//b",
        "a/",
        "line\nend",
        "con/agent-a",
        "a/nul.txt",
        "dot./agent",
        "x" * 300,
        "\ud800",
    ],
    ids=ascii,
)
def test_a_part_cannot_be_outside_of_the_session(tmp_path: Path, subpath: str) -> None:
    odd = Bundle(session_id=SESSION, project=KEY, entries=[prompt("x")], parts={subpath: [prompt("y")]})
    with pytest.raises(OptionsError, match="cannot be a part"):
        put(tmp_path, odd, KEY)
    assert everything(tmp_path) == set()


@pytest.mark.parametrize("key", ["..", "a/b", "", ".", "/etc", "a\\b", "C:", "a\x00"], ids=ascii)
def test_a_project_cannot_be_outside_of_the_folder(tmp_path: Path, key: str) -> None:
    with pytest.raises(OptionsError, match="cannot be a project"):
        put(tmp_path, bundle(), key)
    assert everything(tmp_path) == set()


@pytest.mark.parametrize("session_id", ["../x", "", "x", SESSION + "/.."], ids=ascii)
def test_an_id_is_a_uuid(tmp_path: Path, session_id: str) -> None:
    with pytest.raises(OptionsError):
        put(tmp_path, Bundle(session_id=session_id, project=KEY, entries=[]), KEY)
    assert everything(tmp_path) == set()


def test_texts_and_numbers_of_all_kinds_are_kept(tmp_path: Path) -> None:
    odd = [prompt("x", None, "\x00 \u2028 ä 🎉", number=10**30, small=1e-300)]
    path = put(tmp_path, Bundle(session_id=SESSION, project=KEY, entries=odd), KEY)
    assert load_bundle(file_at(path)).entries == odd


# Deleting


def test_a_session_is_deleted_with_all_that_belongs_to_it(file: SessionFile) -> None:
    archive(file, archived=True)
    other = put(
        file.path.parents[2], Bundle(session_id=SESSION[:-1] + "2", project=KEY, entries=[prompt("x")]), KEY
    )
    delete(file)
    assert everything(file.path.parent) == {other.name}


def test_a_link_is_deleted_and_not_what_it_leads_to(file: SessionFile, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    (file.folder / "link").symlink_to(outside)
    delete(file)
    assert everything(file.path.parent) == set()
    assert everything(outside) == {"kept"}


def test_what_cannot_be_deleted_is_told_and_can_be_tried_again(
    file: SessionFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink, stuck = os.unlink, file.folder / "subagents" / "agent-first.jsonl"

    def refuse(name: str, *, dir_fd: int | None = None) -> None:
        if name == stuck.name:
            raise PermissionError(13, "Permission denied")
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(TranscriptError, match="Permission denied") as caught:
        delete(file)
    assert str(stuck) in str(caught.value)
    assert file.path.exists()
    monkeypatch.undo()
    delete(file)
    assert everything(file.path.parent) == set()
