"""Checks that a session store meets the SDK's contract: `run_session_store_conformance`.

Needs no test framework. `outrider.testing.check_store` checks more: that nothing is stored twice, and that
there is one writer at a time.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from outrider.testing._contracts.contract import Violation
from outrider.transcripts import offers

if TYPE_CHECKING:
    from outrider.compat._types.messages import SessionKey, SessionStoreEntry
    from outrider.compat._types.options import SessionStore

__all__ = ["run_session_store_conformance"]

_OPTIONAL: Final = frozenset(["list_sessions", "list_session_summaries", "delete", "list_subkeys"])
_PROJECT: Final = "project"
_FIRST: Final = "subagents/agent-1"
_SECOND: Final = "subagents/agent-2"
_YEAR_2001: Final = 10**12
"""In milliseconds. A time in seconds is less."""

_Has: TypeAlias = Callable[[str], bool]
_Contract: TypeAlias = Callable[["SessionStore", _Has], Awaitable[None]]

_CONTRACTS: Final[list[tuple[str, str | None, _Contract]]] = []
"""Text, the optional method that it needs, and check, in the order in which they are checked."""


def _contract(text: str, needs: str | None = None) -> Callable[[_Contract], _Contract]:
    def add(check: _Contract) -> _Contract:
        _CONTRACTS.append((text, needs, check))
        return check

    return add


async def run_session_store_conformance(
    make_store: Callable[[], SessionStore | Awaitable[SessionStore]],
    *,
    skip_optional: frozenset[str] = frozenset(),
) -> None:
    """Check a session store of yours. Raises `AssertionError` with the first contract that is broken.

    `make_store` makes an empty store for each contract; it may be async. Optional methods that the
    store does not have, or that `skip_optional` names, are not checked.
    """
    unknown = frozenset(skip_optional) - _OPTIONAL
    if unknown:
        raise AssertionError(f"unknown optional methods in skip_optional: {unknown}")

    def has(method: str) -> bool:
        return method not in skip_optional and offers(probe, method)

    probe = await _made(make_store)
    for text, needed, check in _CONTRACTS:
        if needed is not None and not has(needed):
            continue
        store = await _made(make_store)
        try:
            await check(store, has)
        except Violation as broken:
            raise AssertionError(f"{type(store).__name__}: {text} {broken}") from None


async def _made(make_store: Callable[[], SessionStore | Awaitable[SessionStore]]) -> SessionStore:
    made = make_store()
    return await made if inspect.isawaitable(made) else made


def _key(session: str = "session", subpath: str | None = None, project: str = _PROJECT) -> SessionKey:
    key: SessionKey = {"project_key": project, "session_id": session}
    if subpath is not None:
        key["subpath"] = subpath
    return key


def _entries(*names: str, **fields: object) -> list[SessionStoreEntry]:
    return [
        cast("SessionStoreEntry", {"type": "x", "uuid": name, "number": number, **fields})
        for number, name in enumerate(names)
    ]


async def _expect(store: SessionStore, key: SessionKey, expected: list[SessionStoreEntry] | None) -> None:
    _equal(await store.load(key), expected, f"`load` of {key}")


def _equal(seen: object, expected: object, what: str) -> None:
    if seen != expected:
        raise Violation(f"{what} gave {seen!r:.200}, not {expected!r:.200}.")


async def _ids(store: SessionStore, project: str = _PROJECT) -> list[str]:
    """The sessions of a project, sorted."""
    listed: Any = await store.list_sessions(project)
    if not isinstance(listed, list):
        raise Violation(f"`list_sessions` gave {listed!r:.200}, which is not a list.")
    return sorted(entry["session_id"] for entry in cast("list[dict[str, Any]]", listed))


# The contracts.


@_contract("What was appended is loaded, in its order.")
async def _(store: SessionStore, has: _Has) -> None:
    await store.append(_key(), _entries("b", "a"))
    await _expect(store, _key(), _entries("b", "a"))


@_contract("`load` gives None for what is not there.")
async def _(store: SessionStore, has: _Has) -> None:
    await _expect(store, _key("nobody's"), None)
    await store.append(_key(), _entries("a"))
    await _expect(store, _key(subpath="nothing"), None)


@_contract("Batches are loaded in the order in which they were appended.")
async def _(store: SessionStore, has: _Has) -> None:
    for batch in (("z",), ("a", "m"), ("b",)):
        await store.append(_key(), _entries(*batch, batch=len(batch)))
    expected = [*_entries("z", batch=1), *_entries("a", "m", batch=2), *_entries("b", batch=1)]
    await _expect(store, _key(), expected)


@_contract("Appending no entries changes nothing.")
async def _(store: SessionStore, has: _Has) -> None:
    await store.append(_key(), _entries("a"))
    await store.append(_key(), [])
    await _expect(store, _key(), _entries("a"))


@_contract("A subpath is a transcript of its own.")
async def _(store: SessionStore, has: _Has) -> None:
    await store.append(_key(), _entries("main"))
    await store.append(_key(subpath=_FIRST), _entries("part"))
    await _expect(store, _key(), _entries("main"))
    await _expect(store, _key(subpath=_FIRST), _entries("part"))


@_contract("A project's sessions are its own.")
async def _(store: SessionStore, has: _Has) -> None:
    for project in ("one", "other"):
        await store.append(_key(project=project), _entries(project))
    for project in ("one", "other"):
        await _expect(store, _key(project=project), _entries(project))
        if has("list_sessions"):
            _equal(await _ids(store, project), ["session"], f"`list_sessions` of {project!r}")


@_contract("`list_sessions` gives the sessions of a project, with a time in milliseconds.", "list_sessions")
async def _(store: SessionStore, has: _Has) -> None:
    for session in ("a", "b"):
        await store.append(_key(session), _entries("x"))
    await store.append(_key("c", project="other"), _entries("x"))
    _equal(await _ids(store), ["a", "b"], "`list_sessions`")
    for entry in await store.list_sessions(_PROJECT):
        if not entry["mtime"] > _YEAR_2001:
            raise Violation(f"`mtime` is {entry['mtime']!r}, which is not a time in milliseconds since 1970.")
    _equal(await store.list_sessions("nobody's"), [], "`list_sessions` of an unknown project")


@_contract("`list_sessions` leaves out the parts of sessions.", "list_sessions")
async def _(store: SessionStore, has: _Has) -> None:
    await store.append(_key(), _entries("x"))
    await store.append(_key(subpath=_FIRST), _entries("x"))
    _equal(await _ids(store), ["session"], "`list_sessions`")


@_contract("`list_session_summaries` gives one summary for each session.", "list_session_summaries")
async def _(store: SessionStore, has: _Has) -> None:
    key = _key()
    await store.append(key, _entries("x", "y", timestamp="2024-01-01T00:00:00.000Z", customTitle="first"))
    await store.append(key, _entries("z", timestamp="2024-01-01T00:00:02.000Z", customTitle="second"))
    await store.append(_key("elsewhere", project="other"), _entries("x"))
    before = await _summaries(store)
    _equal([*before], ["session"], "`list_session_summaries`")
    if has("list_sessions"):
        (listed,) = await store.list_sessions(_PROJECT)
        if before["session"]["mtime"] < listed["mtime"]:
            raise Violation(f"a summary is older than its session: {before['session']!r:.200} ({listed!r}).")
    await store.append(_key(subpath=_FIRST), _entries("s", customTitle="of a part"))
    after = await _summaries(store)
    later, earlier = after["session"]["data"], before["session"]["data"]
    _equal(later, earlier, "`list_session_summaries`, after a part of the session got an entry,")
    _equal(
        await store.list_session_summaries("nobody's"), [], "`list_session_summaries` of an unknown project"
    )
    if has("delete"):
        await store.delete(key)
        _equal(await _summaries(store), {}, "`list_session_summaries` after `delete`")


async def _summaries(store: SessionStore) -> dict[str, dict[str, Any]]:
    found: Any = await store.list_session_summaries(_PROJECT)
    if not isinstance(found, list):
        raise Violation(f"`list_session_summaries` gave {found!r:.200}, which is not a list.")
    summaries = cast("list[dict[str, Any]]", found)
    for one in summaries:
        if not isinstance(one["data"], dict):
            raise Violation(f"the `data` of a summary is {one['data']!r:.200}, which is not a dict.")
    if len(summaries) != len({one["session_id"] for one in summaries}):
        raise Violation(f"a session has several summaries: {summaries!r:.200}.")
    return {one["session_id"]: one for one in summaries}


@_contract("`delete` removes a transcript; what is not there is no error.", "delete")
async def _(store: SessionStore, has: _Has) -> None:
    await store.delete(_key("nobody's"))
    await store.append(_key(), _entries("x"))
    await store.delete(_key())
    await _expect(store, _key(), None)


@_contract("`delete` of a session removes its parts, and nothing else.", "delete")
async def _(store: SessionStore, has: _Has) -> None:
    gone = [_key(), _key(subpath=_FIRST), _key(subpath=_SECOND)]
    kept = [_key("session2"), _key(project="other")]
    for key in (*gone, *kept):
        await store.append(key, _entries("x"))
    await store.delete(_key())
    for key in gone:
        await _expect(store, key, None)
    for key in kept:
        await _expect(store, key, _entries("x"))
    if has("list_subkeys"):
        _equal(await store.list_subkeys(_session()), [], "`list_subkeys`")
    if has("list_sessions"):
        _equal(await _ids(store), ["session2"], "`list_sessions`")


@_contract("`delete` of a subpath removes that alone.", "delete")
async def _(store: SessionStore, has: _Has) -> None:
    for key in (_key(), _key(subpath=_FIRST), _key(subpath=_SECOND)):
        await store.append(key, _entries("x"))
    await store.delete(_key(subpath=_FIRST))
    await _expect(store, _key(subpath=_FIRST), None)
    for key in (_key(), _key(subpath=_SECOND)):
        await _expect(store, key, _entries("x"))
    if has("list_subkeys"):
        _equal(await store.list_subkeys(_session()), [_SECOND], "`list_subkeys`")


@_contract("`list_subkeys` gives the subpaths of a session.", "list_subkeys")
async def _(store: SessionStore, has: _Has) -> None:
    for key in (_key(), _key(subpath=_FIRST), _key(subpath=_SECOND), _key("other", "subagents/agent-x")):
        await store.append(key, _entries("x"))
    _equal(sorted(await store.list_subkeys(_session())), [_FIRST, _SECOND], "`list_subkeys`")


@_contract("`list_subkeys` leaves out the main transcript.", "list_subkeys")
async def _(store: SessionStore, has: _Has) -> None:
    await store.append(_key(), _entries("x"))
    _equal(await store.list_subkeys(_session()), [], "`list_subkeys` of a session without parts")
    _equal(await store.list_subkeys(_session("nobody's")), [], "`list_subkeys` of an unknown session")


def _session(session: str = "session") -> Any:  # noqa: ANN401 - a key of another name with the same fields
    return {"project_key": _PROJECT, "session_id": session}
