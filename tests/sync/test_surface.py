"""The two surfaces are one: what is async in `outrider.session` and `outrider.transcripts` is there without
`await` in `outrider.sync`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import outrider.session
import outrider.sync
import outrider.transcripts
from scripts.sync_surface import ATTRIBUTES, LAYOUT, MADE_BY_USERS, RENAMED, TARGETS, written
from tests.cases import every_case, names_of

CLASSES = [name for name in names_of(outrider.sync) if name[0].isupper()]
FUNCTIONS = [name for name in names_of(outrider.sync) if name[0].islower()]


def async_form(name: str) -> Any:
    """What `outrider.sync` has under this name, with `await`."""
    package = outrider.session if name in names_of(outrider.session) else outrider.transcripts
    return getattr(package, name)


@pytest.mark.parametrize("module", LAYOUT)
def test_the_generated_modules_are_up_to_date(module: str) -> None:
    there = Path(TARGETS / f"{module}.py").read_text(encoding="utf-8")
    assert there == written(module), "run scripts/sync_surface.py"


def members(kind: type) -> dict[str, object]:
    """What a class offers, by the name that it has without `await`."""
    found = {
        RENAMED.get(name, name): inspect.getattr_static(kind, name)
        for name in dir(kind)
        if not name.startswith("_") or name in RENAMED or name in RENAMED.values()
    }
    return {
        name: member
        for name, member in found.items()
        if getattr(object, name, None) is not member and not isinstance(member, classmethod)
    }


def returned(member: object) -> object:
    return inspect.signature(member.fget if isinstance(member, property) else member).return_annotation  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@every_case("name", CLASSES)
def test_each_class_has_the_same_members(name: str) -> None:
    ours, theirs = members(getattr(outrider.sync, name)), members(async_form(name))
    assert set(ours) == set(theirs) | set(ATTRIBUTES.get(name, ()))


def pairs() -> list[tuple[str, str]]:
    return [(name, member) for name in CLASSES for member in members(async_form(name))]


@every_case("name, member", pairs())
def test_each_member_is_called_alike_and_returns_alike(name: str, member: str) -> None:
    our, their = members(getattr(outrider.sync, name))[member], members(async_form(name))[member]
    assert isinstance(our, property) == isinstance(their, property)
    assert returned(our) == returned(their)
    if not isinstance(our, property):
        assert callable(our)
        assert callable(their)
        assert inspect.signature(our) == inspect.signature(their)
        assert not inspect.iscoroutinefunction(our)
    assert bool(inspect.getdoc(our)) == bool(inspect.getdoc(their))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_is_called_alike_and_returns_alike(name: str) -> None:
    our, their = getattr(outrider.sync, name), async_form(name)
    assert inspect.signature(our) == inspect.signature(their)
    assert not inspect.iscoroutinefunction(our)


@pytest.mark.parametrize("name", MADE_BY_USERS)
def test_sessions_are_made_alike(name: str) -> None:
    assert inspect.signature(getattr(outrider.sync, name)) == inspect.signature(async_form(name))


def waits(kind: object) -> bool:
    if inspect.iscoroutinefunction(kind):
        return True
    members = vars(kind).values() if isinstance(kind, type) else ()
    return any(inspect.iscoroutinefunction(member) for member in members)


def test_all_that_has_to_be_awaited_is_there() -> None:
    everything = {name: getattr(outrider.session, name) for name in names_of(outrider.session)}
    kept = {name: getattr(outrider.transcripts, name) for name in names_of(outrider.transcripts)}
    # What stores are asked is asked by Outrider, or in the event loop of whoever wrote the store.
    everything |= {name: kind for name, kind in kept.items() if not name.endswith(("Store", "StoreCalls"))}
    # Nor is there an event loop that could have tasks of its own.
    have_to_wait = {name for name, kind in everything.items() if waits(kind)} - {"Background", "background"}
    assert have_to_wait <= set(names_of(outrider.sync)) <= set(everything)


@every_case("name", names_of(outrider.sync))
def test_nothing_is_said_about_await(name: str) -> None:
    kind = getattr(outrider.sync, name)
    docs = [kind.__doc__, *(inspect.getdoc(member) for member in vars(kind).values())]
    for doc in docs:
        assert "await" not in (doc or "")
        assert "async with" not in (doc or "")
        assert "async for" not in (doc or "")
