"""A session waits for the servers that it cannot do without, and tells why one cannot be had."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from outrider.errors import McpServerFailed, OptionsError
from outrider.options import HttpServer, Options, SdkServer, SseServer, StdioServer
from outrider.session._connection import start
from outrider.session._connection.start import required_servers, wait_for_servers
from outrider.wire.control import McpServerStatus

pytestmark = pytest.mark.anyio


class Statuses:
    """Gives one answer after the other, the last one for ever."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def __call__(self) -> list[McpServerStatus]:
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        return [
            McpServerStatus.from_wire(
                {"name": name, **(told if isinstance(told, dict) else {"status": told})}
            )
            for name, told in answer.items()
        ]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_FIRST_PAUSE", 0)


async def test_it_waits_until_all_are_connected() -> None:
    statuses = Statuses(
        {"a": "pending", "b": "pending", "c": "failed"},
        {"a": "connected", "b": "pending", "c": "failed"},
        {"a": "connected", "b": "connected", "c": "failed"},
    )
    await wait_for_servers(statuses, ["a", "b"], 10)
    assert statuses.asked == 3


async def test_those_that_are_not_required_may_fail() -> None:
    statuses = Statuses({"a": "connected", "b": "failed"})
    await wait_for_servers(statuses, ["a"], 10)
    await wait_for_servers(statuses, ["a"], None)


FAILURES: list[tuple[dict[str, Any], str | None, str, str]] = [
    ({"status": "failed", "error": "Connection closed"}, "failed", "Connection closed", "`required`"),
    ({"status": "failed"}, "failed", "", "`required`"),
    ({"status": "needs-auth"}, "needs-auth", "", "Log in"),
    ({"status": "disabled"}, "disabled", "", "Enable it"),
    ({"status": "a new word", "error": "why"}, "a new word", "why", "`required`"),
    (
        {"status": "failed", "error": "ENOENT: 'stdio'", "config": {"command": "/no/such"}},
        "failed",
        "ENOENT: 'stdio' (command: /no/such)",
        "/no/such",
    ),
    (
        {"status": "failed", "error": "no /no/such here", "config": {"command": "/no/such"}},
        "failed",
        "no /no/such here",
        "`required`",
    ),
]


@pytest.mark.parametrize("told, status, reason, said", FAILURES, ids=[str(row[0]) for row in FAILURES])
async def test_one_that_fails_is_told_at_once_with_the_reason(
    told: dict[str, Any], status: str | None, reason: str, said: str
) -> None:
    statuses = Statuses({"a": "pending", "b": "pending"}, {"a": "pending", "b": told})
    with pytest.raises(McpServerFailed) as caught:
        await wait_for_servers(statuses, ["a", "b"], 10)
    error = caught.value
    assert (error.name, error.status, error.reason, error.retryable) == ("b", status, reason, False)
    assert "'b'" in str(error)
    assert said in str(error)


async def test_one_that_the_agent_does_not_have_fails_at_once() -> None:
    with pytest.raises(McpServerFailed, match="does not have it") as caught:
        await wait_for_servers(Statuses({"b": "connected"}), ["a"], 10)
    assert caught.value.status is None


async def test_one_that_takes_too_long_is_told_after_the_time() -> None:
    statuses = Statuses({"a": "connected", "b": "pending"})
    with pytest.raises(McpServerFailed, match=r"'b'.*not reached within 0.05 s.*timeouts.connect") as caught:
        await wait_for_servers(statuses, ["a", "b"], 0.05)
    assert (caught.value.status, caught.value.retryable) == ("pending", True)


async def test_an_agent_that_does_not_answer_is_waited_for_no_longer() -> None:
    async def silence() -> list[McpServerStatus]:
        await anyio.sleep_forever()
        raise AssertionError

    with pytest.raises(McpServerFailed, match=r"'a'.*not reached"):
        await wait_for_servers(silence, ["a"], 0.05)


async def test_the_agent_is_asked_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(start, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr("outrider.session._connection.start.anyio.sleep", sleep)
    await wait_for_servers(Statuses(*[{"a": "pending"}] * 20, {"a": "connected"}), ["a"], 60)
    assert pauses[0] == 0.02
    assert sorted(pauses) == pauses
    assert pauses[-1] == 0.5


def test_which_servers_are_required_is_an_option() -> None:
    options = Options(
        mcp_servers={
            "a": StdioServer(command="x", required=True),
            "b": {"type": "http", "url": "http://h", "required": True},
            "c": SseServer(url="http://h", required=True),
            "d": {"command": "x"},
            "e": SdkServer(name="e"),
        }
    )
    assert required_servers(options) == ["a", "b", "c"]
    assert required_servers(Options(mcp_servers="servers.json")) == []
    assert required_servers(Options()) == []


@pytest.mark.parametrize(
    "server", [StdioServer(command="x", required=True), HttpServer(url="http://h", required=True)], ids=repr
)
def test_the_agent_is_not_told_what_is_required(server: StdioServer | HttpServer) -> None:
    assert "required" in repr(server)
    assert "required" not in server.to_wire()


def test_whether_a_server_is_required_is_yes_or_no() -> None:
    with pytest.raises(OptionsError, match=r"`StdioServer.required` must be True or False"):
        StdioServer(command="x", required="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
