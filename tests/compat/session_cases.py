"""The calls that are made on kept sessions, the same for both packages."""

from __future__ import annotations

from typing import Any

from tests.compat.kept_chains import CHAIN_IDS, CHAINS
from tests.compat.kept_chains import message_id as _u
from tests.compat.kept_heads import HEAD_IDS, HEADS, ODD_HEAD_IDS, ODD_HEADS
from tests.compat.kept_sessions import (
    AGENTS,
    CAPITALS,
    LONG,
    MADE_UP,
    PROJECT,
    RECORDED_AGENT,
    RECORDED_ID,
    TAMED,
    UNICODE,
    UNKNOWN,
    WIDE,
)
from tests.transcripts.lines import prompt, session_id, title

__all__ = ["CASES"]


CASES: list[dict[str, Any]] = []


def _case(world: str, call: str, *args: Any, name: str = "", **more: Any) -> None:
    shown = name or ", ".join([repr(arg) for arg in args if arg != _STORE])
    full = f"{world}: {more.get('store', '')}{' ' if 'store' in more else ''}{call}({shown})"
    kwargs = more.get("kwargs") or {}
    if kwargs and not name:
        full = f"{full[:-1]}; {kwargs})"
    assert full not in {case["name"] for case in CASES}, full
    CASES.append({"name": full, "world": world, "call": call, "args": list(args), **more})


_STORE = {"$": "store"}
_BAD_IDS = [
    "",
    "no id",
    "../../etc/passwd",
    UNKNOWN[:-1],
    UNKNOWN + "x",
    f" {UNKNOWN}",
    "{" + UNKNOWN + "}",
]
_TITLES = ["Named", "  space  ", "", "   ", "\n", "é 日本 😀", 'q"\\', "two\nlines", "\ud83d", "\u200b"]
_TAGS = [
    "tag",
    " tag ",
    None,
    "",
    "  ",
    "\u200b",
    "ﬁ",
    "a\u200bb",
    "\ue000x",
    "é e\u0301 😀",
    "a\nb",
    "\ud83d",
    "x\u2028y",
    "\x07",
]


def _reading_cases() -> None:
    for world in ("nothing", "lists", "said", "places"):
        _case(world, "list_sessions")
        for directory in (
            PROJECT,
            UNICODE,
            LONG,
            LONG + "x",
            "/srv/other",
            "/srv/none",
            "/srv/project/../project/",
        ):
            _case(world, "list_sessions", directory, name=directory[:40] + str(len(directory)))
    for limit, offset in (
        (3, 0),
        (0, 0),
        (-1, 0),
        (1, 2),
        (None, 3),
        (5, 1000),
        (0, 3),
        (3, -1),
        (None, -2),
        (-1, 4),
    ):
        _case("lists", "list_sessions", None, limit, offset)
        _case("said", "get_session_messages", RECORDED_ID, None, limit, offset)
        _case("said", "get_subagent_messages", RECORDED_ID, RECORDED_AGENT, None, limit, offset)
    _case("places", "list_sessions", kwargs={"directory": PROJECT, "include_worktrees": False})
    _case("places", "list_sessions", kwargs={"limit": 2, "offset": 1})
    _case("places", "list_sessions", "")
    _case("places", "get_session_info", session_id(1), "")
    _case("places", "get_session_messages", session_id(1), "")
    _case("places", "list_subagents", session_id(30), "")
    for name, id in HEAD_IDS.items():
        _case("lists", "get_session_info", id, name=name)
    for name, id in ODD_HEAD_IDS.items():
        _case("odd lists", "get_session_info", id, name=name)
    for name, id in CHAIN_IDS.items():
        _case("said", "get_session_messages", id, name=name)
    for seed in MADE_UP:
        _case("said", "get_session_messages", session_id(301 + seed), name=f"made up {seed}")
    for seed in TAMED:
        _case("said", "get_session_messages", session_id(seed), name=f"tamed {seed}")
    for id in (*_BAD_IDS, UNKNOWN):
        _case("places", "get_session_info", id)
        _case("places", "get_session_messages", id)
        _case("places", "list_subagents", id)
        _case("places", "get_subagent_messages", id, "first")
    for number in (1, 2, 3, 4, 21, 22, 30):
        for place in (None, PROJECT, "/srv/other", LONG):
            args = (session_id(number), place)
            name = f"{number}, {place and place[:20]}"
            _case("places", "get_session_info", *args, name=name)
            _case("places", "get_session_messages", *args, name=name)
    for id in (CAPITALS, CAPITALS.lower()):
        _case("odd places", "get_session_info", id)
        _case("odd places", "get_session_messages", id)
    for name, directory in (("wide", WIDE), ("long", LONG), ("longer", LONG + "x"), ("plain", PROJECT)):
        _case("odd places", "list_sessions", directory, name=name)
    for number in (23, 24):
        _case("odd places", "get_session_info", session_id(number), LONG, name=f"{number}, long")
    _case("places", "list_subagents", session_id(30))
    _case("places", "list_subagents", session_id(30), PROJECT)
    _case("places", "list_subagents", session_id(30), "/srv/other")
    _case("places", "list_subagents", session_id(1))
    _case("nothing", "list_subagents", session_id(30))
    for agent in (*AGENTS, "", "../first", "agent-first"):
        _case("places", "get_subagent_messages", session_id(30), agent)
    _case("said", "get_subagent_messages", RECORDED_ID, RECORDED_AGENT)
    _case("said", "list_subagents", RECORDED_ID)
    for directory in (
        PROJECT,
        UNICODE,
        WIDE,
        LONG,
        "/",
        "/srv/a.b_c-d",
        "/srv/" + "y" * 195,
        "/srv/" + "y" * 196,
    ):
        _case("nothing", "project_key_for_directory", directory, name=directory[:40] + str(len(directory)))


def _changing_cases() -> None:
    def case(call: str, *args: Any, world: str = "changed", **more: Any) -> None:
        _case(world, call, *args, changes=True, **more)

    one = session_id(1)
    for title_ in _TITLES:
        case("rename_session", one, title_)
    for tag in _TAGS:
        case("tag_session", one, tag)
    for number in (2, 3, 4, 9):
        case("rename_session", session_id(number), "New", name=str(number))
        case("tag_session", session_id(number), "new", name=str(number))
        case("delete_session", session_id(number), name=str(number))
    for directory in (PROJECT, "/srv/other", "/srv/none"):
        case("rename_session", one, "New", directory)
        case("tag_session", one, "new", directory)
        case("delete_session", one, directory)
        case("fork_session", one, directory)
    for world in ("changed", "nothing"):
        for id in (*_BAD_IDS[:3], UNKNOWN):
            case("rename_session", id, "New", world=world)
            case("tag_session", id, "new", world=world)
            case("delete_session", id, world=world)
            case("fork_session", id, world=world)
            case("fork_session", id, PROJECT, world=world)
    case("rename_session", "no id", "")
    case("tag_session", "no id", "")
    case("rename_session", one.upper(), "New")
    case("delete_session", one)
    case("fork_session", one)
    for number in (2, 3, 4, 5, 6, 7, 8, 9, 10, 11):
        case("fork_session", session_id(number), name=str(number))
    for number in (1, 2, 3, 4, 5, 7, 9, 11, 20, 99):
        case("fork_session", one, None, _u(number), name=f"at {number}")
    case("fork_session", session_id(6), None, _u(52), name="6 at 52")
    case("fork_session", session_id(6), None, _u(57), name="6 at 57")
    for bad in ("", "no id"):
        case("fork_session", one, None, bad)
    for title_ in ("Mine", " Mine ", "", "  "):
        case("fork_session", one, None, None, title_)
    case("fork_session", "no id", None, "no id")


def _store_cases() -> None:
    everything = session_id(30)
    for kind in (
        "minimal",
        "derived",
        "listing",
        "whole",
        "summaries",
        "stale",
        "failing",
        "failing stale",
        "reordering",
    ):

        def case(call: str, *args: Any, kind: str = kind, **more: Any) -> None:
            _case("stored", call, _STORE, *args, store=kind, **more)

        for directory in (PROJECT, "/srv/none"):
            case("list_sessions_from_store", directory)
            case("get_session_info_from_store", session_id(2), directory)
            case("get_session_messages_from_store", session_id(21), directory)
            case("list_subagents_from_store", everything, directory)
            case("get_subagent_messages_from_store", everything, "first", directory)
        for limit, offset in ((3, 0), (0, 0), (2, 2), (None, 3), (-1, 0), (2, 1000), (2, -1)):
            case("list_sessions_from_store", PROJECT, limit, offset)
        for number in (1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 24):
            case("get_session_info_from_store", session_id(number), PROJECT)
        for number in (3, 22, 23, 24, 30):
            case("get_session_messages_from_store", session_id(number), PROJECT)
        if kind not in ("minimal", "whole"):
            # The rest does not depend on what else a store can do.
            continue
        case("get_session_messages_from_store", everything, PROJECT, 2, 1)
        case("get_session_messages_from_store", everything, PROJECT, 0, 0)
        for agent in ("nested", "late", "deep", "no", "gone", ""):
            case("get_subagent_messages_from_store", everything, agent, PROJECT)
        case("get_subagent_messages_from_store", everything, "deep", PROJECT, 1, 1)
        for id in ("", "no id", UNKNOWN):
            case("get_session_info_from_store", id, PROJECT)
            case("get_session_messages_from_store", id, PROJECT)
            case("list_subagents_from_store", id, PROJECT)
            case("get_subagent_messages_from_store", id, "first", PROJECT)
            case("rename_session_via_store", id, "New", PROJECT, changes=True)
            case("tag_session_via_store", id, "new", PROJECT, changes=True)
            case("delete_session_via_store", id, PROJECT, changes=True)
            case("fork_session_via_store", id, PROJECT, changes=True)
        case("delete_session_via_store", everything, PROJECT, changes=True)
        case("rename_session_via_store", everything, " New ", PROJECT, changes=True)
        case("tag_session_via_store", everything, "ﬁ\u200b", PROJECT, changes=True)
        case("fork_session_via_store", session_id(40), PROJECT, changes=True)
        case("fork_session_via_store", session_id(3), PROJECT, changes=True)
    for title_ in ("", "  "):
        _case(
            "stored",
            "rename_session_via_store",
            _STORE,
            everything,
            title_,
            PROJECT,
            store="whole",
            changes=True,
        )
    for tag in (None, "", " ", "\u200b"):
        _case(
            "stored", "tag_session_via_store", _STORE, everything, tag, PROJECT, store="whole", changes=True
        )
    for at in (_u(9), _u(99), "no id"):
        _case(
            "stored",
            "fork_session_via_store",
            _STORE,
            session_id(40),
            PROJECT,
            at,
            store="whole",
            changes=True,
        )
    _case(
        "stored",
        "fork_session_via_store",
        _STORE,
        session_id(40),
        PROJECT,
        None,
        " T ",
        store="whole",
        changes=True,
    )
    _case("stored", "fork_session_via_store", _STORE, session_id(6), PROJECT, store="whole", changes=True)
    _case("stored", "fork_session_via_store", _STORE, session_id(24), PROJECT, store="whole", changes=True)


def _fold_cases() -> None:
    key = {"project_key": "p", "session_id": "s"}
    for name, lines in (
        *HEADS.items(),
        *ODD_HEADS.items(),
        *(("chain " + name, lines) for name, lines in CHAINS.items()),
    ):
        if isinstance(lines, list) and len(str(lines)) < 20_000:
            _case("nothing", "fold_session_summary", None, key, lines, name=name)
    data: dict[str, Any] = {"is_sidechain": False, "first_prompt": "x", "other": 1}
    half = {"session_id": "s", "mtime": 5, "data": data}
    _case("nothing", "fold_session_summary", half, key, [], name="nothing to add")
    _case("nothing", "fold_session_summary", half, key, [prompt("u1"), title("T")], name="goes on")
    locked = {**half, "data": {**data, "first_prompt_locked": True, "tag": "t", "cwd": "/x"}}
    _case("nothing", "fold_session_summary", locked, key, [prompt("u1"), {"type": "tag"}], name="locked")


def _import_cases() -> None:
    def case(*args: Any, **more: Any) -> None:
        _case("imported", "import_session_to_store", *args, store="whole", changes=True, **more)

    for number in (1, 21, 22, 30, 31, 32, 33):
        case(session_id(number), _STORE, name=str(number))
    case(session_id(31), _STORE, kwargs={"include_subagents": False})
    case(session_id(31), _STORE, kwargs={"batch_size": 2, "directory": PROJECT})
    case(session_id(31), _STORE, kwargs={"batch_size": 0})
    case(session_id(31), _STORE, kwargs={"directory": "/srv/none"})
    for id in ("no id", UNKNOWN):
        case(id, _STORE)


def _memory_cases() -> None:
    def case(name: str, *steps: list[Any]) -> None:
        _case("nothing", "InMemorySessionStore", name=name, steps=list(steps))

    main = {"project_key": "p", "session_id": "s"}
    part = {**main, "subpath": "subagents/agent-a"}
    other = {"project_key": "q", "session_id": "t"}
    case("empty", ["size"], ["load", main], ["get_entries", main], ["list_sessions", "p"], ["clear"])
    kept: list[list[Any]] = [["append", key, [prompt("u1"), title("T")]] for key in (main, part, other)]
    asked: list[list[Any]] = [
        *([method, key] for key in (main, part, other) for method in ("load", "get_entries")),
        *([method, key] for key in "pq" for method in ("list_sessions", "list_session_summaries")),
        ["list_subkeys", main],
        ["size"],
    ]
    case("three transcripts", *kept, *asked)
    case("no entries", ["append", main, []], *asked)
    case("only a part", kept[1], *asked)
    case("a part removed", *kept, ["delete", part], *asked)
    case("a session removed", *kept, ["delete", main], *asked)
    case("what is not there removed", ["delete", main], *asked)
    case("cleared", *kept, ["clear"], *asked)
    case("the same again", kept[0], kept[0], *asked)


_reading_cases()
_memory_cases()
_changing_cases()
_store_cases()
_fold_cases()
_import_cases()
