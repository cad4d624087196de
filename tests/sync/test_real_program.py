"""The real program, without `await`."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from textwrap import dedent

import msgspec
import pytest

import outrider
import outrider.sync
from outrider.errors import RequestFailed
from outrider.testing import RealAgent, hang, say, use_tool
from outrider.wire import control
from outrider.wire.hooks import PreToolUseInput
from scripts.agent_program import version
from tests.proc import stat_of
from tests.real_program import require_program
from tests.transports.conftest import wait_for

pytestmark = pytest.mark.real


@pytest.fixture
def agent() -> Iterator[RealAgent]:
    with RealAgent([say("hello")], program=require_program(), otherwise=say("again")) as agent:
        yield agent


def is_running(pid: int | None) -> bool:
    stat = None if pid is None else stat_of(pid)
    return stat is not None and stat.is_running


@pytest.mark.smoke
def test_it_answers(agent: RealAgent) -> None:
    assert outrider.sync.run("hi", agent.options()).text == "hello"
    with outrider.sync.stream("hi", agent.options()) as turn:
        assert list(turn.text()) == ["again"]


WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


def test_what_the_user_supplies_is_called_in_the_context_of_the_caller(agent: RealAgent) -> None:
    seen: list[tuple[str, str]] = []

    @outrider.tool
    def look(ctx: outrider.ToolContext) -> str:
        """Look around."""
        seen.append(("tool", WHO.get()))
        assert ctx.turn is not None
        return "seen"

    @outrider.hook("PreToolUse")
    def before(_: PreToolUseInput) -> None:
        seen.append(("hook", WHO.get()))

    def permit(request: outrider.PermissionRequest) -> bool:
        seen.append(("permission", WHO.get()))
        return request.tool_name == "mcp__tools__look"

    agent.api.clear()
    agent.api.add(use_tool("mcp__tools__look"), say("done"))
    with outrider.sync.Session(agent.options(tools=[look], hooks=[before], permission=permit)) as session:
        token = WHO.set("me")
        events = session.handled()
        assert session.ask("go").text == "done"
        WHO.reset(token)
    assert seen == [("hook", "me"), ("permission", "me"), ("tool", "me")]
    assert [event.outcome for event in events] == ["answered"] * 3


class Sum(msgspec.Struct):
    total: int


def test_output_has_the_type_that_is_asked_for(agent: RealAgent) -> None:
    agent.api.clear()
    agent.api.add(use_tool("StructuredOutput", total=5), say("done"))
    assert outrider.sync.run("add", agent.options(), output=Sum).output.total == 5


@pytest.mark.requirement("A9")
def test_it_is_asked(agent: RealAgent) -> None:
    with outrider.sync.Session(agent.options(enable_file_checkpointing=True)) as session:
        pid = session.pid
        assert session.request(control.GetBinaryVersion()).version == version()
        assert session.set_permission_mode("plan") == "plan"
        assert session.set_model("sonnet").startswith("claude-sonnet")
        assert "sonnet" in {model.value for model in session.request(control.ListModels()).models}
        session.request(control.SetMaxThinkingTokens(2000, "omitted"))
        session.apply_settings({"permissions": {"allow": ["Bash(ls *)"]}})
        rules = session.request(control.ListPermissionRules()).state.rules
        assert "Bash(ls *)" in {rule.rule for rule in rules}
        with pytest.raises(RequestFailed, match="localSettings source is disabled"):
            session.request(control.UpdateSettings("localSettings", {"outputStyle": "Concise"}))
        session.rename("A name")
        assert session.context_usage(detail="summary").max_tokens > 0
        assert session.usage_report(skip_behaviors=True).session.total_cost_usd == 0
        assert not session.interrupt(cancel_queued=True).still_queued
        assert session.cancel_message("aaaaaaaa-0000-4000-8000-000000000001") is False
        for dry_run in (True, False):
            report = session.rewind_files("aaaaaaaa-0000-4000-8000-000000000001", dry_run=dry_run)
            assert not report.can_rewind
            assert "checkpoint" in (report.error or "")
        changed = session.request(control.SetCwd("/no/such/folder"))
        assert changed.status == "rejected"
    assert not is_running(pid)


def test_a_server_needs_no_arguments(agent: RealAgent) -> None:
    with outrider.sync.Session(agent.options()) as session:
        changed = session.mcp_set_servers({"mute": {"command": "false"}})
        assert changed.added == ["mute"]
        assert "Spread" not in changed.errors.get("mute", "")
        assert "mute" in {server.name for server in session.mcp_status()}
        assert session.mcp_set_servers({}).removed == ["mute"]


@pytest.mark.skipif(sys.platform == "win32", reason="no signal can be sent to one thread")
def test_an_interrupt_leaves_nothing_running() -> None:
    def interrupt(agent: RealAgent) -> None:
        agent.api.wait_for(1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    real = RealAgent([hang()], program=require_program())
    with real, outrider.sync.Session(real.options()) as session:
        pid = session.pid
        thread = threading.Thread(target=interrupt, args=(real,))
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            session.ask("hi")
        thread.join()
        session.wait_idle()
    assert not is_running(pid)


def test_a_session_that_is_open_at_the_end_of_the_interpreter_ends_its_agent(agent: RealAgent) -> None:
    script = f"""
        import outrider.sync
        from outrider.options import Options

        options = Options(cli_path={agent.program!r}, env={dict(agent.options().env)!r})
        session = outrider.sync.Session(options)
        session.connect()
        print(session.pid)
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(script)], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    wait_for(lambda: not is_running(int(done.stdout)))
