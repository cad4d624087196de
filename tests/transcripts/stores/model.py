"""Owns a model of a store in plain dicts, and a machine that does at random to both what can be done.

Derive from `StoreMachine` and write `open`; `check_model` runs it.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from copy import deepcopy
from typing import Any
from uuid import uuid4

from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from outrider.errors import LeaseLost, SessionBusy
from outrider.transcripts import SessionKey, SessionStore, SessionStoreEntry, fold_session_summary

__all__ = ["StoreMachine", "check_model"]

PROJECTS = ["p", "P", "p/s", "", "é", "e\u0301", "..", "p%", "x" * 300, "nul\0", "half \ud83d"]
SESSIONS = ["s", "S", "s/a", "", "日本", "%_", "y" * 300, "back\\slash", "~"]
SUBPATHS = [None, "", "a", "subagents/agent-1", "A", "\0", "z" * 300, "\\u0041"]
BATCHES = ["one", "two", "", "Two", "\ud83d"]
UUIDS = ["u1", "u2", "u3", "U1", "", "\0"]

Place = tuple[str, str, str | None]

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
entries_strategy: st.SearchStrategy[Any] = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["user", "assistant", "tag"])},
        optional={
            "uuid": st.sampled_from(["u1", "u2"]) | st.sampled_from(UUIDS),
            "timestamp": st.just("2026-01-01T00:00:00Z"),
            "value": json_values,
            "customTitle": st.sampled_from(["one", "two"]),
            "message": st.fixed_dictionaries({"content": st.text(max_size=10)}),
        },
    ),
    max_size=4,
)
few = st.sampled_from([("p", "s", None), ("p", "s", "a"), ("p", "S", None), ("P", "s", None)])
"""The same again and again, so that one thing is done after another to one place."""
places = st.one_of(
    few,
    few,
    st.tuples(st.sampled_from(PROJECTS), st.sampled_from(SESSIONS), st.sampled_from(SUBPATHS)),
)


batches = st.one_of(st.just("one"), st.sampled_from(BATCHES))


class StoreMachine(RuleBasedStateMachine):
    """A store and its model side by side, through two objects on the same data."""

    def open(self) -> SessionStore:
        """Another object on the same data."""
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._portal: BlockingPortal = self._stack.enter_context(start_blocking_portal())
        # A store that is used by others, and by earlier examples, will do.
        self._run = uuid4().hex
        self._transcripts: dict[Place, list[SessionStoreEntry]] = {}
        self._batches: set[tuple[Place, str]] = set()
        self._order: list[tuple[str, str]] = []
        self._leases: dict[tuple[str, str], tuple[int, str]] = {}

    @initialize()
    def begin(self) -> None:
        self._stores = [self.open(), self.open()]

    def teardown(self) -> None:
        try:
            for store in getattr(self, "_stores", []):
                self._portal.call(store.close)
        finally:
            self._stack.close()

    # What can be done.

    @rule(which=st.integers(0, 1), place=places, entries=entries_strategy)
    def append(self, which: int, place: Place, entries: list[SessionStoreEntry]) -> None:
        given = deepcopy(entries)
        if self._try(which, place, entries, "append", self._key(place), given):
            self._add(place, entries)
        assert given == entries
        self._look(1 - which, place)

    @rule(which=st.integers(0, 1), place=places, entries=entries_strategy, batch=batches)
    def append_batch(self, which: int, place: Place, entries: list[SessionStoreEntry], batch: str) -> None:
        done = self._try(which, place, entries, "append_batch", self._key(place), deepcopy(entries), batch)
        if done and entries and (place, batch) not in self._batches:
            self._batches.add((place, batch))
            self._add(place, entries)
        self._look(1 - which, place)

    @rule(which=st.integers(0, 1), place=places)
    def delete(self, which: int, place: Place) -> None:
        if not self._try(which, place, True, "delete", self._key(place)):
            return
        gone = {one for one in self._transcripts if one[:2] == place[:2] and place[2] in (None, one[2])}
        for one in gone:
            del self._transcripts[one]
        self._batches = {(one, batch) for one, batch in self._batches if one not in gone}
        if place[2] is None and place[:2] in self._order:
            self._order.remove(place[:2])
        self._look(1 - which, place)

    @rule(which=st.integers(0, 1))
    def open_again(self, which: int) -> None:
        """An object is closed, and another takes its place: without its leases."""
        self._portal.call(self._stores[which].close)
        self._stores[which] = self.open()
        self._leases = {
            session: (-1 if holder == which else holder, token)
            for session, (holder, token) in self._leases.items()
        }

    @rule(which=st.integers(0, 1), place=places)
    def acquire(self, which: int, place: Place) -> None:
        session = place[:2]
        try:
            token = self._call(which, "acquire_lease", self._key(session), f"number {which}", 1000.0)
        except SessionBusy:
            assert session in self._leases
        else:
            assert session not in self._leases
            self._leases[session] = which, token

    @precondition(lambda self: self._leases)
    @rule(which=st.integers(0, 1), data=st.data())
    def renew(self, which: int, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(sorted(self._leases)))
        self._call(which, "renew_lease", self._key(session), self._leases[session][1], 1000.0)
        try:
            self._call(which, "renew_lease", self._key(session), "another token", 1000.0)
        except LeaseLost:
            return
        raise AssertionError("another token was renewed")

    @precondition(lambda self: self._leases)
    @rule(which=st.integers(0, 1), data=st.data())
    def release(self, which: int, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(sorted(self._leases)))
        self._call(which, "release_lease", self._key(session), "another token")
        self._call(which, "release_lease", self._key(session), self._leases.pop(session)[1])

    # What is seen.

    def _look(self, which: int, place: Place) -> None:
        loaded = self._call(which, "load", self._key(place))
        assert _text(loaded) == _text(self._transcripts.get(place))
        if place[2] is None:
            self.list_sessions(which, place[0])

    @rule(which=st.integers(0, 1))
    def load(self, which: int) -> None:
        for place in self._transcripts:
            self._look(which, place)

    def list_sessions(self, which: int, project: str) -> None:
        listed = self._call(which, "list_sessions", self._run + project)
        expected = [session for of, session in self._order if of == project]
        assert sorted(one["session_id"] for one in listed) == sorted(expected)
        summaries = self._call(which, "list_session_summaries", self._run + project)
        known = {one["session_id"]: one for one in summaries}
        assert {one: known[one]["mtime"] for one in known} == {
            one["session_id"]: one["mtime"] for one in listed
        }
        for session in expected:
            entries = self._transcripts[project, session, None]
            key = self._key((project, session))
            assert known[session]["data"] == fold_session_summary(None, key, entries)["data"]

    @rule(which=st.integers(0, 1), place=places)
    def list_subkeys(self, which: int, place: Place) -> None:
        listed = self._call(which, "list_subkeys", self._key(place[:2]))
        expected = [one[2] for one in self._transcripts if one[:2] == place[:2] and one[2] is not None]
        assert sorted(listed) == sorted(expected)

    @rule(which=st.integers(0, 1), session=st.sampled_from(SESSIONS))
    def look_for(self, which: int, session: str) -> None:
        projects = [one for one in self._call(which, "list_projects") if one.startswith(self._run)]
        assert sorted(projects) == sorted({self._run + project for project, _ in self._order})
        found = [one for one in self._call(which, "find_session", session) if one.startswith(self._run)]
        assert sorted(found) == sorted(self._run + project for project, one in self._order if one == session)

    # Within.

    def _key(self, place: tuple[Any, ...]) -> SessionKey:
        key: SessionKey = {"project_key": self._run + place[0], "session_id": place[1]}
        if len(place) > 2 and place[2] is not None:
            key["subpath"] = place[2]
        return key

    def _call(self, which: int, method: str, *arguments: Any) -> Any:
        return self._portal.call(getattr(self._stores[which], method), *arguments)

    def _try(self, which: int, place: Place, has_effect: object, method: str, *arguments: Any) -> bool:
        """Whether it was not refused, because of another's lease."""
        holder, _ = self._leases.get(place[:2], (which, ""))
        try:
            self._call(which, method, *arguments)
        except SessionBusy:
            assert holder != which
            return False
        # What changes nothing need not be refused.
        assert holder == which or not has_effect
        return True

    def _add(self, place: Place, entries: list[SessionStoreEntry]) -> None:
        kept = self._transcripts.get(place, [])
        uuids = {entry["uuid"] for entry in kept if "uuid" in entry}
        fresh: list[SessionStoreEntry] = []
        for entry in entries:
            if "uuid" in entry:
                if entry["uuid"] in uuids:
                    continue
                uuids.add(entry["uuid"])
            fresh.append(entry)
        if not fresh:
            return
        self._transcripts[place] = [*kept, *fresh]
        if place[2] is None:
            if place[:2] in self._order:
                self._order.remove(place[:2])
            self._order.append(place[:2])


def _text(entries: object) -> str:
    """1, 1.0 and true are equal to Python, and not to JSON."""
    return json.dumps(entries, sort_keys=True)


def check_model(
    machine: type[StoreMachine], examples: int = 25, steps: int = 25, *, shrink: bool = True
) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            database=None,
        ),
    )
