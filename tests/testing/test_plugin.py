"""The plugin for pytest, in runs of pytest of its own."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import outrider
from tests.real_program import require_program

PREAMBLE = """
import outrider
from outrider.testing import Simulator, expect, say, use_tool
"""

PROGRAM = f"#!{sys.executable}\nraise SystemExit('no agent at all')\n"


# What an inner run is the first to import is forgotten with it; classes that stay would miss their modules.
for module in walk_packages(outrider.__path__, "outrider."):
    if not module.name.startswith("outrider.app"):
        import_module(module.name)


def run(pytester: pytest.Pytester, code: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(PREAMBLE + code)
    given = ("-p", "no:randomly", "-p", "no:cacheprovider", "-o", "outrider_forbid_real=true")
    return pytester.runpytest_inprocess(*given, *arguments)


@pytest.fixture
def program(pytester: pytest.Pytester) -> Path:
    """A program that is no agent, in the folder of the inner run."""
    path = pytester.path / "claude"
    path.write_text(PROGRAM, encoding="utf-8")
    path.chmod(0o755)
    return path


STARTS = """
def test_it():
    outrider.sync.run("hello", cli_path="./claude")
"""


def test_a_test_that_would_start_a_program_is_stopped(pytester: pytest.Pytester, program: Path) -> None:
    result = run(pytester, STARTS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E *UsageError: *::test_it would start the real program *claude*fixtures `agent`*--outrider-real*"]
    )


def test_the_guard_holds_in_threads_and_in_fixtures_of_the_session(
    pytester: pytest.Pytester, program: Path
) -> None:
    code = """
import threading

import pytest


@pytest.fixture(scope="session")
def answer():
    with pytest.raises(outrider.UsageError) as raised:
        outrider.sync.run("hello", cli_path="./claude")
    return raised.value


def test_it(answer):
    seen = [answer]

    def work():
        try:
            outrider.sync.run("hello", cli_path="./claude")
        except outrider.UsageError as error:
            seen.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(seen) == 2
"""
    run(pytester, code).assert_outcomes(passed=1)


@pytest.mark.parametrize("way", ["record", "Traced", "Faulty", "Own"])
def test_the_guard_sees_through_what_is_put_around(
    way: str, pytester: pytest.Pytester, program: Path
) -> None:
    code = f"""
from outrider.testing import Faulty, record
from outrider.transports import MemoryTransport, Traced, TraceFile, intercept


class Own(MemoryTransport):
    def __init__(self, inner):
        self.whatever = inner


def test_it(tmp_path):
    ways = dict(
        record=lambda: record(tmp_path / "a.jsonl"),
        Traced=lambda: intercept(lambda inner: Traced(inner, TraceFile(tmp_path / "a.jsonl"))),
        Faulty=lambda: intercept(Faulty),
        Own=lambda: intercept(Own),
    )
    with ways[{way!r}]():
        outrider.sync.run("hello", cli_path="./claude")
"""
    result = run(pytester, code)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *UsageError: *::test_it would start the real program *claude*"])


def test_both_agents_in_one_test_leave_its_folder_alone(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_TEST_AGENT", sys.executable)
    code = """
def test_it(agent, real_agent, tmp_path):
    assert not [*tmp_path.iterdir()]
"""
    run(pytester, code).assert_outcomes(passed=1)


def test_what_the_kit_starts_is_not_stopped(pytester: pytest.Pytester) -> None:
    code = """
def test_agents_of_the_kit():
    with Simulator([say("Hello!")], executable=True) as agent:
        assert outrider.sync.run("hi", agent.options()).text == "Hello!"
"""
    run(pytester, code).assert_outcomes(passed=1)


@pytest.mark.parametrize("way", ["marker", "option", "not asked for"])
def test_it_may_be_allowed(way: str, pytester: pytest.Pytester, program: Path) -> None:
    code = STARTS
    if way == "marker":
        code = code.replace("def test_it", "import pytest\n\n@pytest.mark.outrider_real\ndef test_it")
    given = {"option": ["--outrider-real"], "not asked for": ["-o", "outrider_forbid_real=false"]}
    result = run(pytester, code, *given.get(way, []))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *ProcessExited: *"])


def test_the_name_of_the_reference_may_mean_the_drop_in(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import claude_agent_sdk.types")
    code = """
def test_it():
    import claude_agent_sdk
    assert claude_agent_sdk.query is outrider.compat.query
"""
    before = {*sys.modules}
    run(pytester, code, "--outrider-compat").assert_outcomes(passed=1)
    assert not [name for name in {*sys.modules} - before if name.startswith("claude_agent_sdk")]


def test_every_session_talks_to_the_simulated_agent(pytester: pytest.Pytester) -> None:
    code = """
def greet(name):
    return outrider.sync.run(f"Greet {name}.", model="claude-x").text


def test_scripted(agent):
    agent.add(expect(prompt="Greet Ada."), say("Hello, Ada!"))
    assert greet("Ada") == "Hello, Ada!"
    agent.add(say("Hello again!"))
    assert greet("Ada") == "Hello again!"
    assert [request.body["model"] for request in agent.requests] == ["claude-x"] * 2


def test_automatic(agent):
    @outrider.tool
    def lookup(ticket: int) -> str:
        \"\"\"Look a ticket up.\"\"\"
        return f"found {ticket}"

    result = outrider.sync.run("Try it.", tools=[lookup])
    assert "found" in result.text


def test_built_in_tools_work_in_a_folder_of_the_test(agent):
    agent.add(use_tool("Write", file_path="note.txt", content="hi"), say("Written."))
    outrider.sync.run("Write a note.", permission_mode="acceptEdits")
    assert (agent.folder / "note.txt").read_text() == "hi"
"""
    run(pytester, code).assert_outcomes(passed=3)


def test_what_the_script_objects_to_is_an_error_of_the_test(pytester: pytest.Pytester) -> None:
    code = """
def test_it(agent):
    agent.add(expect(prompt="Greet Ada."), say("Hello!"))
    try:
        outrider.sync.run("Greet Grace.")
    except outrider.OutriderError:
        pass

def test_not_caught(agent):
    agent.add(expect(prompt="Greet Ada."), say("Hello!"))
    outrider.sync.run("Greet Grace.")
"""
    result = run(pytester, code)
    # One failure each, of its own class.
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["E * outrider.testing.ExpectationFailed: *", "*Greet Ada.*", "*Greet Grace.*"]
    )
    result.stdout.no_fnmatch_line("*ApiFailed*")


def test_a_failed_test_shows_what_was_said(pytester: pytest.Pytester) -> None:
    code = """
def test_it(agent):
    agent.add(use_tool("Bash", command="echo hi", description="Greet"), say("It is 41."))
    assert outrider.sync.run("What is the answer?", allowed_tools=["Bash"]).text == "It is 42."
"""
    result = run(pytester, code)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*- what was said -*", "▶ user * What is the answer?*", "◀ *Bash*", "◀ *It is 41.*"]
    )


def test_a_test_that_passes_shows_nothing(pytester: pytest.Pytester) -> None:
    code = """
def test_it(agent):
    outrider.sync.run("hello")
"""
    result = run(pytester, code, "-rA")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*what was said*")


@pytest.mark.real
def test_the_real_program_is_a_fixture_too(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_TEST_AGENT", require_program())
    code = """
def test_it(real_agent):
    real_agent.add(say("Friday."), say("On Friday."))
    assert outrider.sync.run("When?", real_agent.options()).text == "Friday."
    assert outrider.sync.run("When?").text == "On Friday."
"""
    run(pytester, code).assert_outcomes(passed=1)


def test_without_the_program_such_a_test_is_skipped(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_TEST_AGENT", str(pytester.path / "no-such-program"))
    result = run(pytester, "def test_it(real_agent):\n    assert False\n", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*Claude Code is not installed*"])


RECORDED = """
import os


def test_it(cassette):
    with Simulator([say("Friday.")], executable=True) as agent:
        absent = outrider.Options(cli_path="/no/such/program")
        options = agent.options() if "RECORDS" in os.environ else absent
        assert outrider.sync.run("When?", options).text == "Friday."
"""


def test_a_cassette_is_recorded_once_and_played_from_then_on(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = run(pytester, RECORDED)
    missing.assert_outcomes(errors=1)
    missing.stdout.fnmatch_lines(["*no cassette cassettes*jsonl*--outrider-record=new*"])

    monkeypatch.setenv("RECORDS", "1")
    run(pytester, RECORDED, "--outrider-record=new").assert_outcomes(passed=1)
    (recorded,) = (pytester.path / "cassettes").glob("*/*.jsonl")
    assert recorded.name == "test_it.jsonl"
    before = recorded.read_bytes()

    monkeypatch.delenv("RECORDS")
    run(pytester, RECORDED).assert_outcomes(passed=1)
    run(pytester, RECORDED, "--outrider-record=new").assert_outcomes(passed=1)
    assert recorded.read_bytes() == before

    monkeypatch.setenv("RECORDS", "1")
    run(pytester, RECORDED, "--outrider-record=all").assert_outcomes(passed=1)
    assert recorded.read_bytes() != before


ASKS = """
import os

import pytest


def ask(text):
    with Simulator([say(text)], executable=True) as agent:
        absent = outrider.Options(cli_path="/no/such/program")
        options = agent.options() if "RECORDS" in os.environ else absent
        return outrider.sync.run("When?", options).text


"""

ALIKE = """
class TestOne:
    def test_it(self, cassette):
        assert ask("one") == "one"


class TestOther:
    def test_it(self, cassette):
        assert ask("other") == "other"


def test_case(cassette):
    assert ask("lower") == "lower"


def test_Case(cassette):
    assert ask("upper") == "upper"


@pytest.mark.parametrize("text", ["a/b", "a b", "a-b", "-a-b.", "x" * 200, "x" * 201], ids=str)
def test_each(cassette, text):
    assert ask(text) == text
"""


def test_no_two_tests_have_one_cassette(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORDS", "1")
    run(pytester, ASKS + ALIKE, "--outrider-record=new").assert_outcomes(passed=10)
    names = [path.name for path in (pytester.path / "cassettes").glob("*/*")]
    assert len({name.lower() for name in names}) == 10
    assert {"TestOne.test_it.jsonl", "test_case.jsonl", "test_each-a-b.jsonl"} <= {*names}
    monkeypatch.delenv("RECORDS")
    run(pytester, ASKS + ALIKE).assert_outcomes(passed=10)


def test_what_a_test_says_that_fails_is_no_cassette(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORDS", "1")
    good = ASKS + 'def test_it(cassette):\n    assert ask("Friday.") == "Friday."\n'
    bad = good.replace('ask("Friday.")', 'ask("Monday.")')
    run(pytester, bad, "--outrider-record=new").assert_outcomes(failed=1)
    assert not [*(pytester.path / "cassettes").glob("*/*.jsonl")]
    run(pytester, good, "--outrider-record=new").assert_outcomes(passed=1)
    (recorded,) = (pytester.path / "cassettes").glob("*/*.jsonl")
    before = recorded.read_bytes()
    run(pytester, bad, "--outrider-record=all").assert_outcomes(failed=1)
    assert recorded.read_bytes() == before


@pytest.mark.parametrize("record", ["none", "all"])
def test_a_test_that_is_skipped_need_not_play_its_cassette(
    record: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORDS", "1")
    good = ASKS + 'def test_it(cassette):\n    assert ask("Friday.") == "Friday."\n'
    run(pytester, good, "--outrider-record=new").assert_outcomes(passed=1)
    skips = ASKS + 'def test_it(cassette):\n    pytest.skip("not today")\n'
    run(pytester, skips, f"--outrider-record={record}").assert_outcomes(skipped=1)
    assert [path.suffix for path in (pytester.path / "cassettes").glob("*/*")] == [".jsonl"]


def test_a_failed_test_shows_what_was_played(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORDS", "1")
    good = ASKS + 'def test_it(cassette):\n    assert ask("Friday.") == "Friday."\n'
    run(pytester, good, "--outrider-record=new").assert_outcomes(passed=1)
    monkeypatch.delenv("RECORDS")
    result = run(pytester, good.replace('== "Friday."', '== "Monday."'))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*- what was said -*", "▶ user * When?*", "◀ *Friday.*"])


def test_the_fixtures_are_listed_with_what_they_are_for(pytester: pytest.Pytester) -> None:
    result = run(pytester, "", "--fixtures")
    result.stdout.fnmatch_lines_random(
        ["agent -- *", "*A simulated agent*", "cassette -- *", "real_agent -- *"]
    )
