"""The clauses of the strict part of the contract of a session store: batches, projects and leases."""

from __future__ import annotations

from copy import deepcopy
from typing import Final

import anyio

from outrider.errors import SessionBusy
from outrider.testing._contracts.contract import (
    ANOTHER,
    StoreClauses,
    expect,
    expect_busy,
    expect_loaded,
    expect_lost,
    make_entries,
    make_key,
    make_name,
    make_titles,
    shown,
)
from outrider.transcripts import SessionStore, offers

_LONG: Final = 60.0
_SHORT: Final = 0.2
_RIVALS: Final = 8

_LEASES: Final = ("acquire_lease", "renew_lease", "release_lease")
_ODD_BATCH: Final = "b'1; -- %é/日本"
STRICT_CLAUSES: Final = StoreClauses()
clause: Final = STRICT_CLAUSES.clause


# Batches.


@clause(
    "A batch that comes again under its id adds nothing, whether its entries have a `uuid` or not.",
    "append_batch",
)
async def _(store: SessionStore) -> None:
    key, titles, entries = make_key(), make_titles(3), make_entries(2)
    given = deepcopy(titles)
    await store.append_batch(key, given, "one")
    expect(given == titles, "`append_batch` changed the entries that it was given")
    await store.append_batch(key, deepcopy(titles), "one")
    await expect_loaded(store, key, titles, "sent twice: ")
    await store.append_batch(key, deepcopy(titles), _ODD_BATCH)
    await store.append_batch(key, deepcopy(entries), "two")
    for batch in ("one", _ODD_BATCH, "two"):
        await store.append_batch(key, make_titles(1), batch)
    await expect_loaded(store, key, titles * 2 + entries, "sent again after others: ")


@clause("The id of a batch is one for its transcript, not for others.", "append_batch")
async def _(store: SessionStore) -> None:
    project, titles = make_name(), make_titles(2)
    keys = [
        make_key(project, "one"),
        make_key(project, "one", "subagents/agent-a1"),
        make_key(project, "two"),
        make_key(project + "0", "one"),
    ]
    for key in keys:
        await store.append_batch(key, deepcopy(titles), "one")
    for key in keys:
        await expect_loaded(store, key, titles)


@clause("`append_batch` keeps each `uuid` once, and no entries are nothing.", "append_batch")
async def _(store: SessionStore) -> None:
    key, entries = make_key(), make_entries(4)
    await store.append_batch(key, [], "none")
    loaded = await store.load(key)
    expect(loaded is None, f"{shown(loaded)} for a session that has no entries")
    await store.append(key, deepcopy(entries[:2]))
    await store.append_batch(key, deepcopy(entries[:3]), "one")
    await expect_loaded(store, key, entries[:3], "two of three were there: ")
    await store.append(key, deepcopy(entries))
    await expect_loaded(store, key, entries, "three of four were there: ")


@clause("A batch that comes several times at once is added once, and whole.", "append_batch")
async def _(store: SessionStore) -> None:
    key, titles = make_key(), make_titles(3)

    async def send() -> None:
        await store.append_batch(key, deepcopy(titles), "one")

    async with anyio.create_task_group() as tasks:
        for _ in range(_RIVALS):
            tasks.start_soon(send)
    await expect_loaded(store, key, titles)


@clause("The ids of batches are deleted with their transcript.", "append_batch", "delete")
async def _(store: SessionStore) -> None:
    key, titles = make_key(), make_titles(2)
    part = make_key(key["project_key"], key["session_id"], "a")
    for one, gone in ((key, key), (part, part), (part, key)):
        await store.append_batch(one, deepcopy(titles), "one")
        await store.delete(gone)
        await store.append_batch(one, deepcopy(titles), "one")
        await expect_loaded(store, one, titles, "stored again after `delete`: ")


@clause(
    "Another object on the same data has what was stored, and does not store it again.",
    "append_batch",
    ANOTHER,
)
async def _(one: SessionStore, two: SessionStore) -> None:
    key, titles, entries = make_key(), make_titles(2), make_entries(4)
    await one.append_batch(key, deepcopy(titles), "one")
    await expect_loaded(two, key, titles)
    await two.append_batch(key, deepcopy(titles), "one")
    await two.append(key, deepcopy(entries[:2]))
    await one.append(key, deepcopy(entries[1:3]))
    await two.append_batch(key, deepcopy(entries), "two")
    await one.append_batch(key, deepcopy(titles), "two")
    for store in (one, two):
        await expect_loaded(store, key, titles + entries, "after both had written: ")


# Projects.


@clause(
    "`list_projects` has the projects that have a session, once each; not those that have parts only.",
    "list_projects",
)
async def _(store: SessionStore) -> None:
    run = make_name()
    kept = ["a", "A", "é/日本", "%", "x" * 300]
    for project in kept:
        for session in ("one", "two"):
            await store.append(make_key(run + project, session), make_entries(1))
    await store.append(make_key(f"{run}parts only", "one", "subagents/agent-a1"), make_entries(1))
    found = [project for project in await store.list_projects() if project.startswith(run)]
    listed = [project.removeprefix(run) for project in found]
    expect(len(listed) == len({*listed}), f"a project is listed twice: {shown(sorted(listed))}")
    missing, others = {*kept} - {*listed}, {*listed} - {*kept}
    expect(not missing, f"{shown(sorted(missing))} had sessions, and are not listed")
    expect(not others, f"{shown(sorted(others))} had none, and are listed")


@clause("A project is listed until its last session is deleted.", "list_projects", "delete")
async def _(store: SessionStore) -> None:
    project = make_name()
    for session in ("one", "two"):
        await store.append(make_key(project, session), make_entries(1))
    await store.delete(make_key(project, "one"))
    expect(project in await store.list_projects(), "one of two sessions was deleted, and it is not listed")
    await store.delete(make_key(project, "two"))
    expect(project not in await store.list_projects(), "all its sessions were deleted, and it is listed")


@clause("`find_session` gives the projects that have a session of this id, and no others.", "find_session")
async def _(store: SessionStore) -> None:
    run, session = make_name(), make_name()
    expect(await store.find_session(session) == [], "a session that was never stored was found")
    for project in (f"{run} a", f"{run} B"):
        await store.append(make_key(project, session), make_entries(1))
    await store.append(make_key(f"{run} part", session, "subagents/agent-a1"), make_entries(1))
    for other in (session + "0", session[:-1], session.upper() + "A", "%", "_" * len(session)):
        await store.append(make_key(f"{run} other", other), make_entries(1))
    found = await store.find_session(session)
    expect(sorted(found) == sorted([f"{run} a", f"{run} B"]), f"found: {shown(found)}")


@clause("A session that was deleted is not found.", "find_session", "delete")
async def _(store: SessionStore) -> None:
    session, projects = make_name(), [make_name(), make_name()]
    for project in projects:
        await store.append(make_key(project, session), make_entries(1))
    await store.delete(make_key(projects[0], session))
    found = await store.find_session(session)
    expect(found == projects[1:], f"deleted in {projects[0]}, and found in {found}")


# Leases.


async def _wait_out(store: SessionStore, project: str, holder: str) -> str:
    """The lease of the session 'one', when that of another has run out."""
    while True:
        try:
            return await store.acquire_lease(make_key(project, "one"), holder, _LONG)
        except SessionBusy:
            await anyio.sleep(_SHORT / 4)


@clause(
    "One has the lease of a session: while it runs, `SessionBusy` tells others who, and until when.", *_LEASES
)
async def _(store: SessionStore) -> None:
    project = make_name()
    token = await store.acquire_lease(make_key(project, "one"), "the first, 日本", _LONG)
    expect(token and type(token) is str, f"the token is {token!r}")
    busy = await expect_busy(store.acquire_lease(make_key(project, "one"), "second", _LONG))
    expect(busy.holder == "the first, 日本", f"`holder` is {busy.holder!r}")
    expect(
        busy.retry_after is not None and 0 < busy.retry_after <= _LONG,
        f"`retry_after` is {busy.retry_after} of {_LONG}",
    )
    for other in (make_key(project, "two"), make_key(project + "0", "one")):
        await store.acquire_lease(other, "second", _LONG)


@clause("The holder of a lease can write and delete, and a lease is not a session.", *_LEASES)
async def _(store: SessionStore) -> None:
    key, entries = make_key(), make_entries(3)
    await store.acquire_lease(key, "first", _LONG)
    loaded = await store.load(key)
    expect(loaded is None, f"{shown(loaded)} for a session that has a lease only")
    if offers(store, "list_sessions"):
        listed = await store.list_sessions(key["project_key"])
        expect(listed == [], f"listed, with a lease only: {shown(listed)}")
    await store.append(key, deepcopy(entries[:2]))
    if offers(store, "append_batch"):
        await store.append_batch(key, deepcopy(entries[2:]), "one")
        await expect_loaded(store, key, entries)
    if offers(store, "delete"):
        await store.delete(key)
        expect(await store.load(key) is None, "it is still there after `delete`")


@clause("A lease that is released is free at once; to release it again is not an error.", *_LEASES)
async def _(store: SessionStore) -> None:
    key = make_key()
    await store.release_lease(key, "never there")
    first = await store.acquire_lease(key, "first", _LONG)
    await store.release_lease(key, "another one")
    await expect_busy(store.acquire_lease(key, "second", _LONG), "after another token was released: ")
    await store.release_lease(key, first)
    await store.release_lease(key, first)
    second = await store.acquire_lease(key, "second", _LONG)
    expect(first != second, "two leases have the same token")
    await store.release_lease(key, first)
    await expect_busy(store.acquire_lease(key, "third", _LONG), "after the old token was released again: ")


@clause("A lease that has run out can be had by another; the first one has lost it.", *_LEASES)
async def _(store: SessionStore) -> None:
    project = make_name()
    key = make_key(project, "one")
    first = await store.acquire_lease(key, "first", _SHORT)
    second = await _wait_out(store, project, "second")
    lost = await expect_lost(store.renew_lease(key, first, _LONG))
    expect(lost.holder in ("second", ""), f"'second' has it, and `holder` is {lost.holder!r}")
    await store.release_lease(key, first)
    await store.renew_lease(key, second, _LONG)


@clause("A lease that is renewed runs on, though it had run out, if nobody took it meanwhile.", *_LEASES)
async def _(store: SessionStore) -> None:
    project = make_name()
    key = make_key(project, "one")
    token = await store.acquire_lease(key, "first", _SHORT)
    await store.renew_lease(key, token, _SHORT)
    await anyio.sleep(_SHORT * 2)
    await store.renew_lease(key, token, _LONG)
    await anyio.sleep(_SHORT * 2)
    await expect_busy(store.acquire_lease(key, "second", _LONG), "after it was renewed: ")
    # It can be made shorter too.
    await store.renew_lease(key, token, _SHORT)
    await _wait_out(store, project, "second")


@clause("To renew what was released, or was never there, raises `LeaseLost`.", *_LEASES)
async def _(store: SessionStore) -> None:
    key = make_key()
    await expect_lost(store.renew_lease(key, "never there", _LONG))
    token = await store.acquire_lease(key, "first", _LONG)
    await expect_lost(store.renew_lease(key, "another one", _LONG))
    await store.release_lease(key, token)
    await expect_lost(store.renew_lease(key, token, _LONG))
    await store.acquire_lease(key, "second", _LONG)


async def _race(stores: list[SessionStore]) -> None:
    key, won = make_key(), list[str]()

    async def acquire(store: SessionStore, holder: str) -> None:
        try:
            await store.acquire_lease(key, holder, _LONG)
        except SessionBusy:
            return
        won.append(holder)

    async with anyio.create_task_group() as tasks:
        for number in range(_RIVALS):
            tasks.start_soon(acquire, stores[number % len(stores)], f"number {number}")
    expect(len(won) == 1, f"{_RIVALS} wanted it, and {won} have it")


@clause("Of several who want a lease at the same time, one gets it.", *_LEASES)
async def _(store: SessionStore) -> None:
    await _race([store])


@clause("Of two objects that want a lease at the same time, one gets it.", *_LEASES, ANOTHER)
async def _(*both: SessionStore) -> None:
    await _race([*both])


@clause(
    "While a lease runs, another object cannot write to the session or its parts; it can read.",
    *_LEASES,
    ANOTHER,
)
async def _(one: SessionStore, two: SessionStore) -> None:
    key, entries = make_key(), make_entries(2)
    part = make_key(key["project_key"], key["session_id"], "subagents/agent-a1")
    await two.append(key, deepcopy(entries[:1]))
    token = await one.acquire_lease(key, "first", _LONG)
    for place in (key, part):
        busy = await expect_busy(two.append(place, make_entries(1)), "`append`: ")
        expect(busy.holder == "first", f"`holder` is {busy.holder!r}")
        if offers(two, "append_batch"):
            await expect_busy(two.append_batch(place, make_titles(1), "one"), "`append_batch`: ")
    await expect_busy(two.acquire_lease(key, "second", _LONG))
    await expect_loaded(two, key, entries[:1], "after it was refused: ")
    await two.append(make_key(key["project_key"]), make_entries(1))
    await one.append(key, deepcopy(entries[1:]))
    await one.release_lease(key, token)
    await two.append(part, deepcopy(entries))
    await expect_loaded(one, part, entries, "after it was released: ")
    await expect_loaded(one, key, entries)


@clause(
    "A writer whose lease has run out can go on until another takes it; then it is refused.",
    *_LEASES,
    ANOTHER,
)
async def _(one: SessionStore, two: SessionStore) -> None:
    project, entries = make_name(), make_entries(4)
    key = make_key(project, "one")
    await one.acquire_lease(key, "first", _SHORT)
    await anyio.sleep(_SHORT * 2)
    await one.append(key, deepcopy(entries[:1]))
    token = await _wait_out(two, project, "second")
    await expect_busy(one.append(key, deepcopy(entries[1:2])), "`append`: ")
    if offers(one, "append_batch"):
        await expect_busy(one.append_batch(key, deepcopy(entries[1:2]), "one"), "`append_batch`: ")
    await two.append(key, deepcopy(entries[2:3]))
    await two.release_lease(key, token)
    await one.append(key, deepcopy(entries[3:]))
    await expect_loaded(one, key, [entries[0], *entries[2:]])


@clause(
    "While a lease runs, another object cannot delete the session; who has it can, and has it still.",
    *_LEASES,
    ANOTHER,
    "delete",
)
async def _(one: SessionStore, two: SessionStore) -> None:
    key, entries = make_key(), make_entries(2)
    part = make_key(key["project_key"], key["session_id"], "a")
    for place in (key, part):
        await one.append(place, deepcopy(entries))
    token = await one.acquire_lease(key, "first", _LONG)
    for place in (part, key):
        await expect_busy(two.delete(place), "`delete`: ")
    for place in (key, part):
        await expect_loaded(two, place, entries, "after `delete` was refused: ")
    await one.delete(key)
    await expect_busy(two.append(key, make_entries(1)), "after who has the lease deleted the session: ")
    await one.renew_lease(key, token, _LONG)
    expect(await two.load(key) is None, "it is still there after `delete`")
