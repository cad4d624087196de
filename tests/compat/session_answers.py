"""What a package answers to the cases of `session_cases`, made comparable.

Imports the standard library only: it also runs where Outrider is not.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import hashlib
import json
import os
import pickle
import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Case", "Lookup", "World", "answers"]

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")

_LONGEST = 400
"""A part of an answer that is longer is kept as a digest."""

World = dict[str, Any]
Case = dict[str, Any]
Lookup = Callable[[str], Any]


def answers(worlds: Mapping[str, World], cases: list[Case], lookup: Lookup, folder: Path) -> dict[str, Any]:
    """What each case gives, by its name. Sets `CLAUDE_CONFIG_DIR` meanwhile."""
    before = os.environ.get("CLAUDE_CONFIG_DIR")
    shared: dict[str, Path] = {}
    known: dict[str, str] = {}
    made: dict[str, Any] = {}
    try:
        for case in cases:
            world = worlds[case["world"]]
            if case.get("changes"):
                config = folder / "fresh"
                shutil.rmtree(config, ignore_errors=True)
                lay_out(world, config)
            else:
                if case["world"] not in shared:
                    shared[case["world"]] = folder / case["world"]
                    lay_out(world, folder / case["world"])
                config = shared[case["world"]]
            os.environ["CLAUDE_CONFIG_DIR"] = str(config)
            if case["world"] not in known:
                known[case["world"]] = json.dumps(world, ensure_ascii=False)
            shown = _Shown(known[case["world"]], json.dumps(case, ensure_ascii=False), config)
            made[case["name"]] = compact(_answer(world, case, lookup, config, shown))
    finally:
        os.environ.pop("CLAUDE_CONFIG_DIR", None)
        if before is not None:
            os.environ["CLAUDE_CONFIG_DIR"] = before
    return made


def compact(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, with its parts as digests if they are long."""
    texts = {name: json.dumps(part, sort_keys=True) for name, part in answer.items()}
    return {
        name: part if len(texts[name]) <= _LONGEST else hashlib.sha256(texts[name].encode()).hexdigest()[:20]
        for name, part in answer.items()
    }


def lay_out(world: World, config: Path) -> None:
    """Write the files of a world."""
    config.mkdir(parents=True)
    for name, (text, mtime) in world["files"].items():
        path = config / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Half of a character, for files that are damaged.
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        os.utime(path, (mtime, mtime))


def _answer(world: World, case: Case, lookup: Lookup, config: Path, shown: _Shown) -> Any:
    store = _store(case["store"], world, lookup) if "store" in case else None
    arguments = [store if value == {"$": "store"} else value for value in case.get("args", ())]
    try:
        found = lookup(case["call"])(*arguments, **case.get("kwargs", {}))
        if asyncio.iscoroutine(found):
            found = asyncio.run(found)
        if "steps" in case:
            found = [_taken(found, *step) for step in case["steps"]]
        answer: dict[str, Any] = {"gives": shown.value(found)}
    except Exception as error:  # noqa: BLE001 - it is what is compared
        answer = {"raises": type(error).__name__, "says": shown.text(str(error))}
    if case.get("changes"):
        if store is not None:
            answer["left"] = shown.value(store.contents())
        else:
            left = {
                shown.text(path.relative_to(config).as_posix()): [
                    shown.text(line) for line in path.read_text("utf-8", "surrogateescape").split("\n")
                ]
                for path in sorted(config.rglob("*"), key=lambda path: (path.stat().st_mtime < 1.9e9, path))
                if path.is_file()
            }
            answer["left"] = shown.changed(left, world["files"])
    if store is not None:
        answer["loads"] = store.loads
    return answer


def _taken(subject: Any, name: str, *args: Any) -> Any:
    """What a method gives, or a property is."""
    found = getattr(subject, name)
    found = found(*args) if callable(found) else found
    found = asyncio.run(found) if asyncio.iscoroutine(found) else found
    if isinstance(found, list) and "session_id" in str(found):
        found = sorted(found, key=lambda row: row["session_id"])
    return copy.deepcopy(found)


class _Shown:
    """Makes what a call gives comparable: ids and times that are new have no names of their own."""

    def __init__(self, world: str, case: str, config: Path) -> None:
        self._texts = (case, world)
        self._config = str(config)
        self._new: dict[str, str] = {}

    def text(self, text: str) -> str:
        text = text.replace(self._config, "CONFIG")
        text = _UUID.sub(lambda found: self._id(found[0]), text)
        return _TIME.sub(lambda found: found[0] if self._is_known(found[0]) else "NOW", text)

    def _is_known(self, text: str) -> bool:
        return any(text in known for known in self._texts)

    def _id(self, uuid: str) -> str:
        if self._is_known(uuid):
            return uuid
        return self._new.setdefault(uuid, f"new-{len(self._new) + 1}")

    def value(self, value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            if "message" in fields:
                # Long, and equal or not.
                text = json.dumps(fields["message"], sort_keys=True)
                fields["message"] = hashlib.sha256(text.encode()).hexdigest()[:10]
            return self.value(list(fields.values()))
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(name): self.value(item) for name, item in value.items()}
        if isinstance(value, int) and abs(value - time.time() * 1000) < 3_600_000:
            return "NOW"
        return self.text(value) if isinstance(value, str) else value

    def changed(self, left: dict[str, list[str]], files: Mapping[str, Any]) -> dict[str, Any]:
        """The files that are not as they were; of those that grew, what is new."""
        made: dict[str, Any] = {}
        for name in files:
            if name not in left:
                made[name] = None
        for name, lines in left.items():
            was = [self.text(line) for line in files[name][0].split("\n")] if name in files else []
            if lines == was:
                continue
            if was and lines[: len(was) - 1] == was[:-1]:
                made[name] = {"more": [_parsed(line) for line in lines[len(was) - 1 :]]}
            else:
                made[name] = [_parsed(line) for line in lines]
        return made


def _parsed(line: str) -> Any:
    """What is on a line; the line itself if it is damaged."""
    try:
        return json.loads(line)
    except ValueError:
        return line


# Stores


def _store(kind: str, world: World, lookup: Lookup) -> Any:
    # A copy, in a fraction of the time that `deepcopy` takes.
    entries: list[tuple[dict[str, str], list[dict[str, Any]]]] = pickle.loads(pickle.dumps(world["entries"]))
    contract = lookup("SessionStore")
    memory = lookup("InMemorySessionStore")

    class Counting:
        """What all of them have: the entries, and how often they are loaded."""

        def __init__(self) -> None:
            self.inner = memory()
            self.loads = 0
            self.appended: list[tuple[dict[str, str], int]] = []

        async def append(self, key: Any, entries: Any) -> None:
            self.appended.append((dict(key), len(entries)))
            await self.inner.append(key, entries)

        async def load(self, key: Any) -> Any:
            self.loads += 1
            return await self.inner.load(key)

        def contents(self) -> Any:
            """How many sessions there are, and the transcripts that are not as they were at first."""
            was = {json.dumps(key): some for key, some in entries}
            keys = {**was, **{json.dumps(key): was.get(json.dumps(key)) for key, _ in self.appended}}
            left = [[*json.loads(key).values(), self.inner.get_entries(json.loads(key))] for key in keys]
            return {
                "size": self.inner.size,
                "appended": [[*key.values(), count] for key, count in self.appended],
                "left": [one for one, some in zip(left, keys.values(), strict=True) if one[-1] != some],
            }

    class Derived(Counting, contract):  # type: ignore[misc,valid-type]
        pass

    class Listing(Counting):
        async def list_sessions(self, project_key: str) -> Any:
            return [
                {**row, "mtime": times[row["session_id"]]}
                for row in await self.inner.list_sessions(project_key)
            ]

    class Whole(Listing):
        async def list_session_summaries(self, project_key: str) -> Any:
            return [
                {**row, "mtime": times[row["session_id"]]}
                for row in await self.inner.list_session_summaries(project_key)
            ]

        async def delete(self, key: Any) -> None:
            await self.inner.delete(key)

        async def list_subkeys(self, key: Any) -> Any:
            return await self.inner.list_subkeys(key)

    class SummariesOnly(Counting):
        list_session_summaries = Whole.list_session_summaries

    class Stale(Whole):
        async def list_session_summaries(self, project_key: str) -> Any:
            rows = await super().list_session_summaries(project_key)
            return [{**row, "mtime": row["mtime"] - 1} for row in rows[::2]]

    class Failing(Listing):
        async def load(self, key: Any) -> Any:
            if key["session_id"].endswith("3"):
                self.loads += 1
                raise OSError("the store is down")
            return await Counting.load(self, key)

    class FailingStale(Stale):
        load = Failing.load

    class Reordering(Whole):
        async def load(self, key: Any) -> Any:
            return json.loads(json.dumps(await super().load(key), sort_keys=True))

    kinds = {
        "minimal": Counting,
        "derived": Derived,
        "listing": Listing,
        "whole": Whole,
        "summaries": SummariesOnly,
        "stale": Stale,
        "failing": Failing,
        "failing stale": FailingStale,
        "reordering": Reordering,
    }
    made = kinds[kind]()
    times: dict[str, int] = {}

    async def fill() -> None:
        for number, (key, some) in enumerate(entries):
            await made.inner.append(key, some)
            times.setdefault(key["session_id"], 1_772_000_000_000 + number * 1000)

    asyncio.run(fill())
    return made
