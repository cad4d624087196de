"""What each package offers: pinned, so that a change to it is meant."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import pytest

import bridle
from tests.cases import every_case

ROOT = Path(__file__).parents[1]
PACKAGES = [
    "bridle",
    "bridle.command",
    "bridle.errors",
    "bridle.handlers",
    "bridle.launch",
    "bridle.options",
    "bridle.protocol",
    "bridle.redaction",
    "bridle.session",
    "bridle.sync",
    "bridle.testing",
    "bridle.transcripts",
    "bridle.transports",
    "bridle.wire",
    "bridle.wire.choices",
    "bridle.wire.control",
    "bridle.wire.hooks",
    "bridle.wire.permissions",
    "bridle.wire.shapes",
    "bridle.wire.tools",
]


def public(module: ModuleType) -> list[str]:
    """The names that its author would call public: no underscore, no module or type variable, its own."""
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType | TypeVar)
        and getattr(value, "__module__", None) == module.__name__
    )


@every_case("name", PACKAGES)
def test_all_names_what_is_there(name: str) -> None:
    module = importlib.import_module(name)
    names: list[str] = module.__all__
    assert len(names) == len(set(names))
    assert [missing for missing in names if not hasattr(module, missing)] == []


@pytest.mark.parametrize(
    "name",
    [
        "bridle.protocol",
        "bridle.transports",
        "bridle.wire",
        "bridle.wire.control",
        "bridle.wire.hooks",
    ],
)
def test_a_package_exports_every_public_name_of_its_modules(name: str) -> None:
    package = importlib.import_module(name)
    folder = Path(str(package.__file__)).parent
    for path in folder.glob("_[a-z]*.py"):
        module = importlib.import_module(f"{name}.{path.stem}")
        internal = INTERNAL.get(f"{name}.{path.stem}", set())
        assert set(public(module)) - internal <= set(package.__all__), path.stem


# Shared between the modules of a package, and no part of what it offers.
INTERNAL = {
    "bridle.transports._blocking": {"BlockingInput", "BlockingOutput", "Piece", "read"},
    "bridle.transports._flags": {"Bell", "Descriptor", "Flag", "SocketDescriptor", "socket_pair"},
    "bridle.transports._folder": {"discard_folder", "make_folder", "remove_folder"},
    "bridle.transports._forks": {"FreshLock", "Inherited", "forget_in_forks"},
    "bridle.transports._host": {"Host", "Kept", "host"},
    "bridle.transports._input": {"Input", "InputClosed", "Ticket"},
    "bridle.transports._keeper": {"InputEnd", "Keeper", "OutputEnd", "Patience"},
    "bridle.transports._memory": {"Pipe"},
    "bridle.transports._output": {"Output", "Readiness"},
    "bridle.transports._polling": {"PollingKeeper"},
    "bridle.transports._process": {"Link"},
    "bridle.transports._processes": {
        *("NoTable", "ProcTable", "ProcessTable", "Stat", "environment_of", "process_ids", "processes"),
        *("put_tag", "stat_of", "tag_of"),
    },
    "bridle.transports._removal": {"is_name", "lock", "new_name", "remove_tree", "sweep"},
    "bridle.transports._spawn": {"Spawned", "check_for_windows", "explain", "spawn"},
    "bridle.transports._starting": {"run_uninterrupted", "start"},
    "bridle.transports._stderr": {"Callback", "StderrLog"},
    "bridle.transports._threads": {"Job", "ThreadedKeeper"},
    "bridle.transports._trace": {"open_trace"},
    "bridle.transports._trace_file": {"Lines", "Masking", "RunTrace", "new_trace_path"},
    "bridle.transports._transport": {"Inbox", "Receiver", "line_of"},
    "bridle.transports._tree": {"Tree"},
    "bridle.transports._warden": {"Warden"},
    "bridle.transports._warden_main": {
        *(
            "clean_up",
            "end_groups",
            "end_marked",
            "find",
            "has_ended",
            "hold",
            "is_ours",
            "is_signalled",
            "main",
            "send",
            "started_at",
            "tag_of",
            "wait",
            "wait_for_death",
        ),
    },
    "bridle.transports._windows": {
        *("BasicAccounting", "BasicLimit", "ExtendedLimit", "IoCounters", "MemoryCounters", "ProcessList"),
        *("JobKeeper", "System", "WindowsJob", "this_system"),
    },
    "bridle.wire._decoding": {
        "Nesting",
        "decode_frame",
        "decode_object",
        "decode_tolerantly",
        "fast_decoder",
        "finished",
        "opening",
        "typed_frame",
    },
    "bridle.wire._encoding": {"frame_to_wire"},
    "bridle.wire._json": {"dumps", "loads"},
    "bridle.wire._received": {"Received"},
    "bridle.wire._salvage": {"asker_of"},
    "bridle.wire._tolerant": {"convert_leniently", "fields_of", "is_object"},
    "bridle.wire._value": {"Line"},
    "bridle.wire._validating": {"schema_of"},
}


def test_version() -> None:
    assert bridle.__version__.count(".") == 2


def test_the_extra_all_names_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    (everything,) = extras.pop("all")
    assert everything == f"bridle[{','.join(sorted(extras))}]"
    assert [name.partition(">")[0] for name in project["dependencies"]] == ["anyio", "msgspec"]


@pytest.mark.parametrize("name", ["bridle", "bridle.wire"])
def test_importing_loads_nothing_that_is_not_needed(name: str) -> None:
    """No event loop, nothing optional, and none of the parts of `wire` that are loaded on use."""
    code = f"import sys, {name}; print(*sorted(sys.modules))"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    unwanted = {"asyncio", "trio", "mcp", "pydantic", "logging", "dataclasses"}
    unwanted |= {
        f"bridle.wire.{part}" for part in ("choices", "control", "hooks", "permissions", "shapes", "tools")
    }
    assert unwanted & set(loaded) == set()


def test_the_package_is_typed() -> None:
    assert (Path(bridle.__file__).parent / "py.typed").exists()
