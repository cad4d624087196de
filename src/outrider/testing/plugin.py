"""The plugin for pytest: agents as fixtures, a guard against real ones, what was said in a failed test.

It is loaded in every run of pytest where Outrider is installed, so it imports the rest only where a test
needs it, and changes nothing of tests that do not ask for it.
"""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from outrider.testing import RealAgent, Script, Simulator
    from outrider.transports import Transport

__all__ = ["agent", "cassette", "real_agent"]

_GUARD: Final = pytest.StashKey[ExitStack]()
_TRACE: Final = pytest.StashKey["Path"]()
_RECORDS: Final = pytest.StashKey[bool]()
_STOPPED: Final = pytest.StashKey[bool]()
"""Whether the test did not come to its end: it has failed, or was skipped."""

_SCRIPT: Final[pytest.StashKey[Script]] = pytest.StashKey()
"""That of the agent of a test."""

_RECORD_MODES: Final = ("none", "new", "all")


# Settings.


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("outrider", "agents in tests")
    group.addoption(
        "--outrider-real",
        action="store_true",
        help="let every test start the agent's real program, also if the project forbids it",
    )
    group.addoption(
        "--outrider-record",
        choices=_RECORD_MODES,
        default="none",
        help="what `cassette` records: nothing, what has no cassette yet (new), or everything again (all)",
    )
    parser.addini(
        "outrider_forbid_real",
        "refuse to start the agent's real program in tests",
        type="bool",
        default=False,
    )
    parser.addini(
        "outrider_cassettes", "the folder for cassettes, beside the test's file", default="cassettes"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "outrider_real: this test may start the agent's real program")


# The guard, where a project asks for it.


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    if not config.getini("outrider_forbid_real") or config.getoption("--outrider-real"):
        return
    from outrider.transports import intercept

    # For all threads: it does not matter where the code under test opens its sessions.
    guard = config.stash[_GUARD] = ExitStack()
    guard.enter_context(intercept(_guarded, everywhere=True))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (guard := session.config.stash.get(_GUARD, None)) is not None:
        guard.close()


_running: list[pytest.Item] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _running.append(item)
    try:
        return (yield)
    finally:
        _running.pop()


def _guarded(transport: Transport) -> Transport:
    """The same. Raises `UsageError` if it would start a program that no one allowed."""
    from outrider.errors import UsageError
    from outrider.testing import KIT_VARIABLE
    from outrider.transports import ProcessTransport

    starting = [each.command for each in _inside(transport) if isinstance(each, ProcessTransport)]
    starting = [command for command in starting if KIT_VARIABLE not in (command.env or {})]
    if not starting:
        return transport
    item = _running[-1] if _running else None
    if item is not None and (item.get_closest_marker("outrider_real") or item.stash.get(_RECORDS, False)):
        return transport
    where = "This run of pytest" if item is None else f"{item.nodeid}"
    raise UsageError(
        f"{where} would start the real program {starting[0].argv[0]!r}",
        hint="Use one of the fixtures `agent`, `real_agent` and `cassette`; or allow it, with the marker "
        "`outrider_real` or with --outrider-real. The configuration forbids it with `outrider_forbid_real`.",
    )


def _inside(transport: Transport) -> list[Transport]:
    """A transport, and all those that it was put around, whatever it calls them."""
    from outrider.transports import Transport

    found = [transport]
    for each in found:
        held = getattr(each, "__dict__", {}).values()
        found += [other for other in held if isinstance(other, Transport) and other not in found]
    return found


# Fixtures.


@pytest.fixture
def agent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    """A simulated agent, and every session of the test talks to it, wherever it is opened.

        def test_greets(agent):
            agent.add(say("Hello!"))
            assert greet() == "Hello!"          # calls outrider.run() somewhere

    It is automatic where no steps are added. What its script objects to fails the test at the end. Sessions
    that are given a `transport` keep it.
    """
    from outrider.testing import Simulator

    # Not the `tmp_path` of the test, which has it for itself.
    root = tmp_path_factory.mktemp("agent")
    simulator = Simulator(folder=root / "project", config_dir=root / "config")
    with simulator, _traced(request), simulator.stand_in(everywhere=True):
        request.node.stash[_SCRIPT] = simulator.script
        yield simulator


@pytest.fixture
def real_agent(request: pytest.FixtureRequest) -> Iterator[RealAgent]:
    """Claude Code itself with a scripted model, in a clean environment, and every session of the test starts
    it, wherever it is opened. It is used like `agent`.

        def test_greets(real_agent):
            real_agent.add(say("Hello!"))
            assert greet() == "Hello!"          # calls outrider.run() somewhere

    The test is skipped if Claude Code is not installed.
    """
    from outrider.errors import AgentNotFound
    from outrider.testing import RealAgent

    try:
        made = RealAgent()
    except AgentNotFound as error:
        pytest.skip(f"Claude Code is not installed: {str(error).splitlines()[0]}")
    with made, _traced(request), made.stand_in(everywhere=True):
        request.node.stash[_SCRIPT] = made.script
        yield made


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The sessions of the test are played from a file, and need no program; `--outrider-record` writes it.

    The file is `cassettes/<module>/<test>.jsonl` beside the test. With `--outrider-record=new`, a test that
    has none talks to the real program and records it; with `all`, every test does. What a test says that
    fails is not kept.
    """
    from outrider.testing import record, replay

    config = request.config
    folder = request.path.parent / str(config.getini("outrider_cassettes")) / request.path.stem
    path = folder / f"{_file_name(request.node)}.jsonl"
    mode = config.getoption("--outrider-record")
    if mode == "all" or (mode == "new" and not path.exists()):
        request.node.stash[_RECORDS] = True
        folder.mkdir(parents=True, exist_ok=True)
        played: AbstractContextManager[object] = record(path, everywhere=True)
    elif not path.exists():
        shown = os.path.relpath(path, config.rootpath)
        pytest.fail(f"There is no cassette {shown}: record it with --outrider-record=new", pytrace=False)
    else:
        played = replay(path, everywhere=True)
    with suppress(_Stopped), _traced(request), played:
        yield path
        if request.node.stash.get(_STOPPED, False):
            raise _Stopped


class _Stopped(Exception):
    """The test did not come to its end, so nothing can be said of what is missing."""


_PLAIN_NAME: Final = re.compile(r"(\w+\.)*[a-z0-9_]+(\[[a-z0-9_.-]*[a-z0-9_]\])?", re.ASCII)
_NAME_LENGTH: Final = 100


def _file_name(test: pytest.Item) -> str:
    """The name of a test with those of its classes, as far as every file system takes it. One that does not
    tell the test from all others, on a file system that ignores case too, is given a mark."""
    classes = [node.name for node in test.listchain() if isinstance(node, pytest.Class)]
    name = ".".join([*classes, test.name])
    plain = re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip("-.")
    if _PLAIN_NAME.fullmatch(name) and len(name) <= _NAME_LENGTH:
        return plain
    mark = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain[:_NAME_LENGTH]}-{mark}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """What its script objects to is the failure of a test, and not what follows from it."""
    script = item.stash.get(_SCRIPT, None)
    failure: BaseException | None = None
    try:
        return (yield)
    except BaseException as error:
        failure = error
        raise
    finally:
        if script is not None and script.errors:
            try:
                script.check(after=failure)
            finally:
                # Once: the end of the fixture would raise it again.
                script.errors.clear()


# What was said, in the report of a test that failed.


@contextmanager
def _traced(request: pytest.FixtureRequest) -> Generator[None]:
    from outrider.transports import Traced, TraceFile, intercept

    if _TRACE in request.node.stash:
        # By another fixture, for all sessions of the test.
        yield
        return
    factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    path = factory.mktemp("said") / "conversation.jsonl"
    file = TraceFile(path)
    request.node.stash[_TRACE] = path
    try:
        with intercept(lambda transport: Traced(transport, file), everywhere=True):
            yield
    finally:
        file.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when != "teardown" and not report.passed:
        item.stash[_STOPPED] = True
    path = item.stash.get(_TRACE, None)
    if call.when == "call" and report.failed and path is not None and path.exists():
        from outrider.testing import conversation

        if said := conversation(path):
            report.sections.append(("what was said", said))
    return report
