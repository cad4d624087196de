"""`check_store`, which checks that a session store keeps its contract, clause by clause."""

from __future__ import annotations

from copy import deepcopy
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from uuid import uuid4

import anyio

from outrider.errors import OptionsError
from outrider.testing._contracts.contract import (
    ANOTHER,
    Bench,
    Clauses,
    ContractBroken,
    StoreClauses,
    Violation,
    check_clauses,
    expect,
    expect_loaded,
    make_entries,
    make_entry,
    make_key,
    make_name,
    shown,
)
from outrider.testing._contracts.store_strict import STRICT_CLAUSES
from outrider.transcripts import SessionKey, SessionStore, SessionStoreEntry, offers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from outrider.testing._contracts.contract import Make


_LARGE_BATCH: Final = 5000
_WRITERS: Final = 10
_BATCHES: Final = 6
_CLAUSES: Final = StoreClauses()
clause: Final = _CLAUSES.clause


# Keeping.


@clause("What was appended is loaded, as it was, in its order.")
async def _(store: SessionStore) -> None:
    key, entries = make_key(), make_entries(3)
    await store.append(key, deepcopy(entries))
    await expect_loaded(store, key, entries)
    more = make_entries(3)
    for entry in more:
        await store.append(key, [deepcopy(entry)])
    await expect_loaded(store, key, entries + more)


@clause("`load` gives None for what is not there.")
async def _(store: SessionStore) -> None:
    key = make_key()
    for absent in (key, {**key, "subpath": "subagents/agent-a1"}):
        loaded = await store.load(cast("SessionKey", absent))
        expect(loaded is None, f"{shown(loaded)} for a session that was never stored")
    await store.append(key, make_entries(1))
    loaded = await store.load({**key, "subpath": "subagents/agent-a1"})
    expect(loaded is None, f"{shown(loaded)} for a subpath that was never stored")


@clause("Appending no entries changes nothing.")
async def _(store: SessionStore) -> None:
    key, entries = make_key(), make_entries(2)
    await store.append(key, [])
    loaded = await store.load(key)
    expect(loaded is None, f"{shown(loaded)} for a session that has no entries")
    await store.append(key, deepcopy(entries))
    await store.append(key, [])
    await expect_loaded(store, key, entries)


@clause("A batch that is appended again, or in part, is not stored twice.")
async def _(store: SessionStore) -> None:
    key, entries = make_key(), make_entries(6)
    await store.append(key, deepcopy(entries[:3]))
    await store.append(key, deepcopy(entries[:3]))
    await expect_loaded(store, key, entries[:3], "sent twice: ")
    await store.append(key, deepcopy(entries[1:5]))
    await expect_loaded(store, key, entries[:5], "sent in part: ")
    await store.append(key, deepcopy([entries[5], entries[5]]))
    await expect_loaded(store, key, entries, "twice in one batch: ")
    # Two copies of a session may share entries.
    other = {**key, "session_id": str(uuid4())}
    await store.append(cast("SessionKey", other), deepcopy(entries))
    await expect_loaded(store, cast("SessionKey", other), entries, "sent to another session too: ")


@clause("Entries without a `uuid` are all kept.")
async def _(store: SessionStore) -> None:
    key = make_key()
    titles = [{"type": "custom-title", "customTitle": title} for title in ("one", "two", "one")]
    entries = cast("list[SessionStoreEntry]", titles)
    for entry in entries:
        await store.append(key, [deepcopy(entry)])
    await expect_loaded(store, key, entries)


@clause("Each key is a transcript of its own, whatever its text.")
async def _(store: SessionStore) -> None:
    stored = {index: make_entries(1) for index in range(len(_ODD_KEYS))}
    run = make_name()
    keys = [make_key(f"{run} {project}", session, path) for project, session, path in _ODD_KEYS]
    for index, key in enumerate(keys):
        await store.append(deepcopy(key), deepcopy(stored[index]))
    for index, key in enumerate(keys):
        await expect_loaded(store, key, stored[index])


_ODD_KEYS: Final[tuple[tuple[str, str, str | None], ...]] = (
    ("p", "s", None),
    ("p", "s", "subagents/agent-1"),
    ("p", "s", "subagents/agent-10"),
    ("p", "s", "subagents"),
    ("p", "s2", None),
    ("p2", "s", None),
    ("P", "S", None),
    # Joined by a separator, these would be the same.
    ("p/a", "b", None),
    ("p", "a/b", None),
    ("p", "a", "b"),
    ("p:a", "b", None),
    ("p", "a:b", None),
    # Patterns and quotes of databases and file systems.
    ("p%", "s", None),
    ("p_", "s", None),
    ("p*", "s", None),
    ("p'; --", 'quo"te', "back\\slash"),
    ("..", "../s", "../../s"),
    (" p", "s ", None),
    # Two ways to write é, and what is outside of the first plane.
    ("é", "s", None),
    ("e\u0301", "s", None),
    ("日本", "😀", "ß/İ"),
)


@clause("Any JSON comes back as it was: odd text, large numbers, deep and empty values.")
async def _(store: SessionStore) -> None:
    for name, value in _ODD_VALUES.items():
        key, entries = make_key(), [make_entry(value=value), make_entry(1, odd={name: value})]
        try:
            await store.append(key, deepcopy(entries))
        except Exception as error:
            raise Violation(f"{name}: {type(error).__name__}: {error}") from error
        await expect_loaded(store, key, entries, f"{name}: ")


_DEEP: Final[object] = reduce(lambda inner, _: [{"in": inner}], range(50), cast("object", []))
_ODD_VALUES: Final[dict[str, object]] = {
    "unicode": "é e\u0301 日本 😀 \u202e\u2028\ufeff",
    "line ends": "a\nb\r\nc\u2029",
    "controls": "\x01\x1b[31m\x7f",
    "a NUL": "a\x00b",
    "a lone surrogate": "cut \ud83d",
    "a large whole number": 2**70,
    "a negative one": -(2**63) - 1,
    "fractions": [0.1, 1e300, -0.5],
    "small ones": [0, 1, True, False, None],
    "empty ones": [{}, [], "", {"": ""}],
    "deep ones": _DEEP,
    "markup": "<b>&amp;</b> ${x} %s {0} \\u0041",
}


@clause("Large batches and large entries are kept.")
async def _(store: SessionStore) -> None:
    key, entries = make_key(), make_entries(_LARGE_BATCH)
    await store.append(key, deepcopy(entries))
    await expect_loaded(store, key, entries)
    large = [make_entry(text="€" * 1024 * 1024)]
    await store.append(key, deepcopy(large))
    await expect_loaded(store, key, entries + large)


@clause("Appends at the same time are all kept, those of one caller in order.")
async def _(store: SessionStore) -> None:
    key = make_key()
    written = {writer: make_entries(_BATCHES * 2) for writer in range(_WRITERS)}

    async def write(writer: int) -> None:
        for start in range(0, _BATCHES * 2, 2):
            await store.append(key, deepcopy(written[writer][start : start + 2]))

    async with anyio.create_task_group() as tasks:
        for writer in written:
            tasks.start_soon(write, writer)
    loaded = await store.load(key) or []
    total = _WRITERS * _BATCHES * 2
    expect(len(loaded) == total, f"{total} entries were appended, and {len(loaded)} are there")
    for entries in written.values():
        expect([entry for entry in loaded if entry in entries] == entries, "some are in another order")


@clause("What is given out, and what was given, can be changed without effect.")
async def _(store: SessionStore) -> None:
    key, entries = make_key(), [make_entry(nested={"list": [1]}) for _ in range(2)]
    given_key, given = deepcopy(key), deepcopy(entries)
    await store.append(given_key, given)
    expect(given == entries, "`append` changed the entries that it was given")
    expect(given_key == key, "`append` changed the key that it was given")
    _spoil(given)
    await expect_loaded(store, key, entries, "what was given was changed afterwards: ")
    _spoil(await store.load(key))
    await expect_loaded(store, key, entries, "what was given out was changed: ")


def _spoil(given: object) -> None:
    entries = cast("list[Any]", given)
    entries[0]["nested"]["list"].append("spoilt")
    entries[0]["number"] = "spoilt"
    del entries[1:]


# Listing.


async def _times(store: SessionStore, project: str) -> dict[str, int]:
    listed: list[Any] = list(await store.list_sessions(project))
    for one in listed:
        is_whole = type(one["mtime"]) is int and isinstance(one["session_id"], str)
        expect(is_whole, f"{shown(one)} has no text `session_id` and whole `mtime`")
    ids = [one["session_id"] for one in listed]
    expect(len(ids) == len({*ids}), f"a session is listed twice: {ids}")
    return {one["session_id"]: one["mtime"] for one in listed}


@clause("`list_sessions` gives the sessions of a project, and of no other; not their parts.", "list_sessions")
async def _(store: SessionStore) -> None:
    project = make_name()
    expect(await store.list_sessions(project) == [], "a project that was never stored has sessions")
    for session in ("one", "two"):
        await store.append(make_key(project, session), make_entries(1))
        await store.append(make_key(project, session, "subagents/agent-a1"), make_entries(1))
    await store.append(make_key(project, "only a part", "subagents/agent-a1"), make_entries(1))
    for other in (project + "0", project[:-1], project.upper() + "%", "%", "_" * len(project)):
        await store.append(make_key(other, "three"), make_entries(1))
    listed = await _times(store, project)
    expect({*listed} == {"one", "two"}, f"'one' and 'two' were stored, and {[*listed]} are listed")


@clause("`mtime` tells which session got an entry last, in milliseconds since 1970.", "list_sessions")
async def _(store: SessionStore) -> None:
    project, times = make_name(), dict[str, int]()
    for session in ("one", "two", "three", "one", "two", "one"):
        await anyio.sleep(0.002)
        await store.append(make_key(project, session), make_entries(1))
        times = await _times(store, project)
        newest = [name for name, time in times.items() if time == max(times.values())]
        expect(newest == [session], f"{session!r} was appended to last, and newest is {newest} of {times}")
    expect(1_600_000_000_000 < min(times.values()) < 10**14, f"`mtime` is {min(times.values())}")


@clause(
    "`list_subkeys` gives the subpaths of a session, and of no other; not the main transcript.",
    "list_subkeys",
)
async def _(store: SessionStore) -> None:
    project = make_name()
    expect(
        await store.list_subkeys(make_key(project, "one")) == [],
        "a session that was never stored has parts",
    )
    await store.append(make_key(project, "one"), make_entries(1))
    expect(await store.list_subkeys(make_key(project, "one")) == [], "a session without parts has some")
    subpaths = ["subagents/agent-a1", "subagents/deep/agent-é", "other"]
    for subpath in subpaths:
        for _ in range(2):
            await store.append(make_key(project, "one", subpath), make_entries(1))
    await store.append(make_key(project, "one0", "not this"), make_entries(1))
    await store.append(make_key(project + "0", "one", "nor this"), make_entries(1))
    listed = await store.list_subkeys(make_key(project, "one"))
    expect(sorted(listed) == sorted(subpaths), f"{subpaths} were stored, and {listed} are listed")


# Deleting.


@clause("`delete` of a session removes it with all its parts, and nothing else.", "delete")
async def _(store: SessionStore) -> None:
    project = make_name()
    gone = [make_key(project, "one"), *(make_key(project, "one", path) for path in ("a", "subagents/b"))]
    kept = [
        make_key(project, "one0"),
        make_key(project, "two", "a"),
        make_key(project + "0", "one"),
        make_key(project, "%"),
    ]
    entries = make_entries(2)
    for key in (*gone, *kept):
        await store.append(key, deepcopy(entries))
    await store.delete(make_key(project, "one"))
    for key in gone:
        expect(await store.load(key) is None, f"{key} is still there")
    for key in kept:
        await expect_loaded(store, key, entries, "another session: ")


@clause("`delete` of a subpath removes that alone.", "delete")
async def _(store: SessionStore) -> None:
    project, entries = make_name(), make_entries(2)
    gone = make_key(project, "one", "subagents/a")
    kept = [
        make_key(project, "one"),
        make_key(project, "one", "subagents/a1"),
        make_key(project, "one", "subagents"),
    ]
    for key in (gone, *kept):
        await store.append(key, deepcopy(entries))
    await store.delete(gone)
    expect(await store.load(gone) is None, f"{gone} is still there")
    for key in kept:
        await expect_loaded(store, key, entries)


@clause("`delete` of what is not there is no error; what is stored afterwards is kept.", "delete")
async def _(store: SessionStore) -> None:
    key, entries = make_key(), make_entries(2)
    await store.delete(key)
    await store.delete({**key, "subpath": "a"})
    await store.append(key, deepcopy(entries))
    await store.delete(key)
    await store.delete(key)
    await store.append(key, deepcopy(entries))
    await expect_loaded(store, key, entries, "stored again after `delete`: ")


@clause("A session that was deleted is not listed.", "delete", "list_sessions")
async def _(store: SessionStore) -> None:
    project = make_name()
    for session in ("one", "two"):
        await store.append(make_key(project, session), make_entries(1))
    await store.delete(make_key(project, "one"))
    expect([*await _times(store, project)] == ["two"], f"listed: {await store.list_sessions(project)}")


@clause("A subpath that was deleted is not listed, alone or with its session.", "delete", "list_subkeys")
async def _(store: SessionStore) -> None:
    key = make_key()
    for subpath in ("a", "b"):
        await store.append({**key, "subpath": subpath}, make_entries(1))
    await store.delete({**key, "subpath": "a"})
    listed = await store.list_subkeys(key)
    expect(listed == ["b"], f"'a' was deleted, and {listed} are listed")
    await store.delete(key)
    listed = await store.list_subkeys(key)
    expect(listed == [], f"the session was deleted, and {listed} are listed")


# Summaries.


async def _summaries(store: SessionStore, project: str) -> dict[str, int]:
    summaries: list[Any] = list(await store.list_session_summaries(project))
    for one in summaries:
        is_whole = type(one["mtime"]) is int and type(one["data"]) is dict
        expect(is_whole, f"{shown(one)} has no whole `mtime` and object `data`")
    return {one["session_id"]: one["mtime"] for one in summaries}


@clause(
    "`list_session_summaries` has the sessions of a project, at most once each.", "list_session_summaries"
)
async def _(store: SessionStore) -> None:
    project = make_name()
    expect(await _summaries(store, project) == {}, "a project that was never stored has summaries")
    for session in ("one", "two"):
        await store.append(make_key(project, session), make_entries(2))
        await store.append(make_key(project, session, "subagents/agent-a1"), make_entries(1))
    await store.append(make_key(project + "0", "three"), make_entries(1))
    summaries = await _summaries(store, project)
    listed = await _times(store, project) if offers(store, "list_sessions") else summaries
    expect({*summaries} <= {"one", "two"}, f"there are summaries of {[*summaries]}")
    late = {session: time for session, time in summaries.items() if time > listed.get(session, 0)}
    expect(not late, f"summaries are newer than their sessions: {late}, and listed are {listed}")
    again: list[Any] = await store.list_session_summaries(project)
    for one in again:
        one["data"]["spoilt"] = True
    fresh: list[Any] = await store.list_session_summaries(project)
    expect(not any("spoilt" in one["data"] for one in fresh), "what was given out is not a copy")


@clause("A session that was deleted has no summary.", "delete", "list_session_summaries")
async def _(store: SessionStore) -> None:
    key = make_key()
    await store.append(key, make_entries(2))
    await store.delete(key)
    summaries = await _summaries(store, key["project_key"])
    expect(summaries == {}, f"there are summaries of {[*summaries]}")


@clause("`get_session_summary` has the summary of one session, up to date.", "get_session_summary")
async def _(store: SessionStore) -> None:
    key = make_key()
    expect(await store.get_session_summary(key) is None, "a session that was never stored has a summary")
    await store.append({**key, "subpath": "subagents/agent-a1"}, make_entries(1))
    expect(await store.get_session_summary(key) is None, "a session without a main transcript has a summary")
    await store.append(key, make_entries(1))
    first: Any = await store.get_session_summary(key)
    expect(first is not None, "a session that was stored has no summary")
    expect(first["session_id"] == key["session_id"], f"it is of the session {first['session_id']}")
    await store.append(key, make_entries(1))
    second: Any = await store.get_session_summary(key)
    expect(second["mtime"] > first["mtime"], f"after an append the time is {second['mtime']}, as before")


@clause("`list_latest_sessions` has the latest sessions, the latest first.", "list_latest_sessions")
async def _(store: SessionStore) -> None:
    project, other = make_name(), make_name()
    expect(await store.list_latest_sessions(project, 3) == [], "a project that was never stored has sessions")
    for session in ("one", "two", "three", "one"):
        await store.append(make_key(project, session), make_entries(1))
    await store.append(make_key(other, "four"), make_entries(1))
    for limit in (1, 2, 3, 9):
        latest: list[Any] = await store.list_latest_sessions(project, limit)
        told = [one["session_id"] for one in latest]
        expect(told == ["one", "three", "two"][:limit], f"the latest {limit} are {told}")
        expect(all(one["project_key"] == project for one in latest), "they have no `project_key`")
    all_of_them: list[Any] = await store.list_latest_sessions(None, 1000)
    told = [one["session_id"] for one in all_of_them if one["project_key"] in (project, other)]
    expect(told == ["four", "one", "three", "two"], f"of two projects, the latest are {told}")


S = TypeVar("S", bound="SessionStore")

ALL_CLAUSES: Final[Mapping[tuple[str, ...], Clauses[Bench]]] = {**_CLAUSES, **STRICT_CLAUSES}


async def check_store(
    make: Make[S],
    *,
    again: Callable[[S], S | Awaitable[S] | AbstractAsyncContextManager[S]] | None = None,
    deadline: float = 30.0,
) -> list[str]:
    """Check a store of yours against the contract of `SessionStore`; returns the clauses that were checked.

        await check_store(MemoryStore)

    `make` makes a store for each clause; it need not be empty, because all keys are new ones. It may be
    asynchronous, or give an async context manager of a store, where something has to be put away afterwards:
    what is stored here is not removed. Methods that are optional, and not there, are not checked.

    Some clauses are about two objects on the same data, as two processes have them. If `make` makes an empty
    store each time, give `again`, which is called with a store and makes another one on its data:

        await check_store(MemoryStore, again=MemoryStore)

    Without it, and if what one store of `make` gets is not in the next, these are left out.

    Runs on asyncio and trio; `anyio.run(check_store, make)` runs it outside of a test. `deadline` bounds each
    clause.

    Raises `ContractBroken`, an `AssertionError`, with every clause that is not kept and what was seen.
    """
    if not deadline > 0:
        raise OptionsError(f"`deadline` is {deadline}; give a number of seconds")
    bench = Bench(make, again)
    async with bench.stores() as (store,):
        subject = type(store).__name__
        has = {method for method in _PROBES if await _is_there(store, method)}
    # Not before the rest is known to be there: others need not be ready for a second one.
    if "append_batch" in has and await bench.can_make_two():
        has.add(ANOTHER)
    clauses: Clauses[Bench] = Clauses(
        clause for needed, all_of_it in ALL_CLAUSES.items() if has.issuperset(needed) for clause in all_of_it
    )
    broken = await check_clauses(clauses, bench, bench.target, deadline, is_first_vital=True)
    if broken:
        raise ContractBroken(subject, broken, len(clauses))
    return [clause.text for clause in clauses]


async def _is_there(store: SessionStore, method: str) -> bool:
    """Whether an optional method can be used: it may be inherited from another contract's text."""
    if not offers(store, method):
        return False
    try:
        await _PROBES[method](store, make_key())
    except NotImplementedError:
        return False
    except Exception:  # noqa: BLE001 - it is there; what is wrong with it is seen later
        return True
    return True


_PROBES: Final[Mapping[str, Callable[[SessionStore, SessionKey], Awaitable[object]]]] = {
    "list_sessions": lambda store, key: store.list_sessions(key["project_key"]),
    "list_session_summaries": lambda store, key: store.list_session_summaries(key["project_key"]),
    "get_session_summary": lambda store, key: store.get_session_summary(key),
    "list_latest_sessions": lambda store, key: store.list_latest_sessions(key["project_key"], 1),
    "delete": lambda store, key: store.delete(key),
    "list_subkeys": lambda store, key: store.list_subkeys(key),
    "append_batch": lambda store, key: store.append_batch(key, [], "a batch"),
    "list_projects": lambda store, key: store.list_projects(),
    "find_session": lambda store, key: store.find_session(key["session_id"]),
    "acquire_lease": lambda store, key: store.acquire_lease(key, "check_store", 0.1),
    "renew_lease": lambda store, key: store.renew_lease(key, "no lease", 0.1),
    "release_lease": lambda store, key: store.release_lease(key, "no lease"),
}
"""The optional methods, and how to see whether they are there."""
