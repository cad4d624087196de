"""The parts of the mirror by themselves: keys read off paths, and the backlog."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.session._store import mirror
from outrider.session._store.mirror import Backlog, Batch, Keys, RescueFile
from tests.cases import every_case

ID = "5e551011-0000-4000-8000-000000000001"
OTHER = "5e551011-0000-4000-8000-000000000002"

PATHS: list[tuple[str, tuple[str, ...] | None]] = [
    (f"/home/me/.claude/projects/-p/{ID}.jsonl", ("-p", ID)),
    (f"/tmp/outrider-1-x/config/projects/-p/{ID}.jsonl", ("-p", ID)),
    (f"/home/me/.claude/projects/-p/{ID}/subagents/agent-a1.jsonl", ("-p", ID, "subagents/agent-a1")),
    (f"/c/projects/-p/{ID}/subagents/workflows/w/agent-a.jsonl", ("-p", ID, "subagents/workflows/w/agent-a")),
    (f"/c/projects/-p/{ID}/notes.jsonl", ("-p", ID, "notes")),
    # Folders of that name above, and below.
    (f"/home/projects/me/x/.claude/projects/-p/{ID}.jsonl", ("-p", ID)),
    (f"/c/projects/projects/{ID}.jsonl", ("projects", ID)),
    (rf"C:\Users\me\.claude\projects\C--p\{ID}.jsonl", ("C--p", ID)),
    (rf"\\host\share\projects\-p\{ID}\subagents\agent-a.jsonl", ("-p", ID, "subagents/agent-a")),
    ("/c/projects/-p/main.jsonl", ("-p", "main")),
    # None of these.
    ("", None),
    ("/etc/passwd", None),
    (f"/c/projects/{ID}.jsonl", None),
    (f"/c/projects/-p/{ID}.json", None),
    (f"/c/projects/-p/{ID}/agent-a.meta.json", None),
    (f"/c/projects/-p/{ID}/../../x.jsonl", None),
    (f"/c/projects/../-p/{ID}.jsonl", None),
    (f"/c/elsewhere/-p/{ID}.jsonl", None),
    (f"/c/projects/-p/{ID}\0.jsonl", None),
    ("/c/projects/-p/.jsonl", None),
]


def told(key: Any) -> tuple[str, ...] | None:
    return None if key is None else tuple(key.values())


@every_case("path, key", PATHS, ids=[str(number) for number in range(len(PATHS))])
def test_the_key_is_read_off_the_path(path: str, key: tuple[str, ...] | None) -> None:
    assert told(Keys().key_of(path)) == key


def test_nothing_outside_of_a_known_folder_has_a_key(tmp_path: Path) -> None:
    config, link = tmp_path / "config", tmp_path / "link"
    config.mkdir()
    link.symlink_to(config)
    for given_as in (config, link, Path(os.path.relpath(link))):
        keys = Keys(given_as)
        for folder in (config, os.path.abspath(given_as)):  # noqa: PTH100 - as a shell would say it
            assert told(keys.key_of(f"{folder}/projects/-p/{ID}.jsonl")) == ("-p", ID)
        assert keys.key_of(f"{tmp_path}/other/projects/-p/{ID}.jsonl") is None
        assert keys.key_of(f"{config}/todos/projects/-p/{ID}.jsonl") is None


def test_a_session_can_be_kept_under_another_project() -> None:
    keys = Keys()
    keys.place(ID, "-where-it-began")
    assert told(keys.key_of(f"/c/projects/-p/{ID}/a/b.jsonl")) == ("-where-it-began", ID, "a/b")
    assert told(keys.key_of(f"/c/projects/-p/{OTHER}.jsonl")) == ("-p", OTHER)


# The backlog.


def key(name: str) -> Any:
    return {"project_key": "-p", "session_id": name}


FRAMES = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 9), st.integers(1, 100), st.booleans()), max_size=30
)


@given(FRAMES)
def test_what_is_put_in_comes_out_once_and_in_order(frames: list[tuple[str, int, int, bool]]) -> None:
    backlog = Backlog()
    put: dict[str, list[int]] = {"a": [], "b": []}
    got: dict[str, list[int]] = {"a": [], "b": []}
    order: list[int] = []
    ids: list[str] = []
    count = 0

    def take() -> None:
        batch = backlog.take()
        if batch is not None:
            entries: list[Any] = batch.entries
            numbers = [entry["n"] for entry in entries]
            got[batch.key["session_id"]] += numbers
            order.extend(numbers)
            ids.append(batch.id)

    for name, length, size, is_taken in frames:
        numbers = list(range(count, count + length))
        count += length
        put[name] += numbers
        backlog.put(key(name), [{"n": number} for number in numbers], size)
        if is_taken:
            take()
    while backlog:
        take()
    assert got == put
    assert order == list(range(count))
    assert len(set(ids)) == len(ids)
    assert backlog.take() is None
    assert backlog.size == 0


def drained(backlog: Backlog) -> list[Batch]:
    return list(iter(backlog.take, None))


def test_batches_are_not_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    backlog = Backlog()
    backlog.put(key("a"), [{"n": number} for number in range(1201)], 20_000)
    assert [len(batch.entries) for batch in drained(backlog)] == [500, 500, 201]
    monkeypatch.setattr(mirror, "BATCH_BYTES", 100)
    backlog.put(key("a"), [{"text": "x" * 60}] * 3, 210)
    backlog.put(key("a"), [{"text": "x" * 500}], 510)
    backlog.put(key("a"), [{}] * 10, 40)
    assert [len(batch.entries) for batch in drained(backlog)] == [1, 1, 1, 1, 10]


def test_nothing_to_rescue_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert RescueFile().describe() == "it is lost"
    assert not list(tmp_path.iterdir())


def test_a_batch_is_rescued_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    file = RescueFile()
    for name in ("one", "two", "one"):
        file.add(Batch(key("a"), [], name, 0))
    [path] = tmp_path.iterdir()
    assert f"it is in {path}" in file.describe()
    assert [json.loads(line)["batch"] for line in path.read_text().splitlines()] == ["one", "two"]


def test_what_could_be_rescued_is_named_though_it_is_not_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    file = RescueFile()
    file.add(Batch(key("a"), [], "one", 0))
    monkeypatch.setattr("builtins.open", fail)
    file.add(Batch(key("a"), [], "two", 0))
    [path] = tmp_path.iterdir()
    assert "could not be written whole" in file.describe()
    assert str(path) in file.describe()
