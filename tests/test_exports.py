"""What each package offers: pinned, so that a change to it is meant."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TypeVar, cast

import pytest

import outrider
from outrider._lazy import lazily
from tests.cases import every_case

ROOT = Path(__file__).parents[1]
PACKAGES = [
    "outrider",
    "outrider.answers",
    "outrider.approvals",
    "outrider.command",
    "outrider.errors",
    "outrider.handlers",
    "outrider.launch",
    "outrider.messages",
    "outrider.options",
    "outrider.protocol",
    "outrider.redaction",
    "outrider.runners",
    "outrider.session",
    "outrider.sync",
    "outrider.telemetry",
    "outrider.testing",
    "outrider.transcripts",
    "outrider.transports",
    "outrider.view",
]


def private_modules(name: str, package: ModuleType) -> list[str]:
    """The modules of a package, also those in its private folders; packages in it that are public speak for
    themselves."""
    folder = Path(str(package.__file__)).parent
    found = (path.relative_to(folder).with_suffix("").parts for path in folder.rglob("*.py"))
    return [
        ".".join((name, *parts)) for parts in found if parts[0].startswith("_") and parts[-1] != "__init__"
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
        "outrider.protocol",
        "outrider.transports",
        "outrider.wire",
        "outrider.wire.control",
        "outrider.wire.hooks",
    ],
)
def test_a_package_exports_every_public_name_of_its_modules(name: str) -> None:
    package = importlib.import_module(name)
    modules = {each: importlib.import_module(each) for each in private_modules(name, package)}
    for each, module in modules.items():
        names = set(public(module)) - INTERNAL.get(each, set())
        assert names <= set(getattr(package, "__all__", ())) or all(hasattr(package, name) for name in names)


def test_the_table_of_names_is_that_of_the_packages() -> None:
    from scripts import lazy_names

    assert lazy_names.page() == lazy_names.TARGET.read_text(encoding="utf-8"), (
        "run `.venv/bin/python scripts/lazy_names.py`"
    )


@every_case("name", ["outrider", "outrider.session", "outrider.messages"])
def test_a_name_that_there_is_not_is_an_attribute_error(name: str) -> None:
    module = importlib.import_module(name)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'Sesion'"):
        _ = module.Sesion
    assert set(module.__all__) <= set(dir(module))


def test_what_is_internal_is_there() -> None:
    for name, names in INTERNAL.items():
        assert names <= {*public(importlib.import_module(name))}, name


# Shared between the modules of a package, and no part of what it offers.
INTERNAL = {
    "outrider.transports._process.child": {"Callback", "Child", "ShutdownTimeouts", "StderrLog"},
    "outrider.transports._process.pipes": {"Input", "InputClosed", "LoopPipes", "Output", "Ticket"},
    "outrider.transports._process.processes": {
        *("Leader", "ProcTable", "ProcessTable", "PsutilTable", "Stat", "Tree"),
        *("processes", "put_tag", "use_psutil"),
    },
    "outrider.transports._process.removal": {"is_name", "lock", "new_name", "remove_tree", "sweep"},
    "outrider.transports._process.spawn": {
        *("Spawned", "discard_folder", "explain", "make_folder", "remove_folder", "run_uninterrupted"),
        *("spawn", "start"),
    },
    "outrider.transports._process.supervisor": {"Supervisor", "Watchdog", "supervisor"},
    "outrider.transports._process.wakeup": {
        *("AsideLog", "AsideThread", "Descriptor", "FreshLock", "Inherited", "LoopWaker", "Poller"),
        *("ThreadEvent", "WakeupFd"),
        *("caller_in", "forget_in_forks", "process_log", "wait_until_woken"),
    },
    "outrider.transports._process.watchdog_main": {
        *("clean_up", "end_all", "end_groups", "is_signalled", "main", "signal_all", "signal_while_there"),
        *("sweep_all", "take_note", "wait_for_death"),
    },
    "outrider.transports._trace.writer": {"Lines", "Masking", "RunTrace", "new_trace_path", "open_trace"},
    "outrider.transports._transport": {"Inbox", "Pipe", "line_of"},
    "outrider.wire._decoding": {
        "known_frames",
        "Nesting",
        "asker_of",
        "decode_frame",
        "decode_object",
        "decode_tolerantly",
        "fast_decoder",
        "finished",
        "opening",
        "typed_frame",
    },
    "outrider.wire._tolerant": {"convert_leniently", "fields_of", "is_object"},
    "outrider.wire._value": {"Line", "PlainObject", "Received", "dumps", "loads"},
}


def test_version() -> None:
    assert outrider.__version__.count(".") == 2


def test_the_extra_all_names_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    (everything,) = extras.pop("all")
    assert everything == f"outrider[{','.join(sorted(extras))}]"
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    assert [name for name in extras if not re.search(rf"^\| (`\w+`, )*`{name}`", page, re.MULTILINE)] == []
    needed = [name.partition(">")[0] for name in project["dependencies"] if "sys_platform" not in name]
    assert needed == ["anyio", "msgspec"]


@pytest.mark.parametrize("name", ["outrider", "outrider.wire"])
def test_importing_loads_nothing_that_is_not_needed(name: str) -> None:
    """No event loop, nothing optional, and none of the parts of `wire` that are loaded on use."""
    code = f"import sys, {name}; print(*sorted(sys.modules))"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    unwanted = {"asyncio", "trio", "mcp", "pydantic", "logging", "dataclasses"}
    unwanted |= {
        f"outrider.wire.{part}" for part in ("choices", "control", "hooks", "permissions", "shapes", "tools")
    }
    assert unwanted & set(loaded) == set()


def test_a_store_without_its_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    load = lazily("outrider.transcripts")[0]
    for package, module, store, extra in (
        ("psycopg", "_postgres", "PostgresStore", "postgres"),
        ("botocore.exceptions", "_s3", "S3Store", "s3"),
        ("redis", "_redis", "RedisStore", "redis"),
    ):
        monkeypatch.setitem(sys.modules, package, None)
        monkeypatch.delitem(sys.modules, f"outrider.transcripts.stores.{module}", raising=False)
        with pytest.raises(ImportError, match=re.escape(f"pip install 'outrider[{extra}]'")):
            cast("Callable[[str], object]", load(store))("x")


@every_case("package, library, name", [("acp", "acp", "serve"), ("view", "starlette", "app")])
def test_a_package_without_its_library_names_the_extra(package: str, library: str, name: str) -> None:
    code = f"import sys; sys.modules[{library!r}] = None; from outrider.{package} import {name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"pip install 'outrider[{package}]'" in done.stderr


def test_the_package_is_typed() -> None:
    assert (Path(outrider.__file__).parent / "py.typed").exists()


FIRST_QUERY = """
import asyncio, sys
from outrider.compat import ClaudeAgentOptions, CLINotFoundError, query

async def main():
    async for _ in query(prompt="Hello", options=ClaudeAgentOptions(cli_path="/no/such/program")):
        pass

try:
    asyncio.run(main())
except CLINotFoundError:
    print(*sorted(sys.modules))
"""


def test_a_query_of_the_drop_in_loads_what_it_needs() -> None:
    """Hundreds of classes that few programs use would take a tenth of a short run."""
    loaded = subprocess.run([sys.executable, "-c", FIRST_QUERY], capture_output=True, text=True, check=True)
    heavy = {"compat._types.messages", "handlers._tools", "transcripts.stores._sqlite", "wire.control._mcp"}
    unwanted = {f"outrider.{name}" for name in (*heavy, "wire.control._settings", "wire.shapes")}
    assert unwanted & {*loaded.stdout.split()} == set()


def test_the_watchdog_loads_little() -> None:
    """It starts beside each host, while that starts its first agent."""
    program = ROOT / "src/outrider/transports/_process"
    code = f"import sys; sys.path.insert(0, {str(program)!r}); import watchdog_main; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert {"json", "re", "tempfile", "typing"} & {*done.stdout.split()} == set()
