"""A hermetic run shares nothing: not with the machine, and not with two hundred others beside it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from outrider.launch import make_command, make_initialize
from outrider.options import Options
from outrider.protocol import Peer
from outrider.testing import MessagesApi, clean_environment, say
from outrider.transports import ProcessTransport
from outrider.wire import InitMessage, ResultMessage, UnknownMessage, user_message
from tests.real_program import require_program

CANARY = "canary-7f3a"

# Says which folders it has, and leaves a file of the same name in each.
AGENT = """#!/bin/sh
for folder in "$CLAUDE_CONFIG_DIR" "$HOME" "$TMPDIR"; do echo mine > "$folder/file" || exit 1; done
echo "{\\"type\\":\\"folders\\",\\"folders\\":[\\"$CLAUDE_CONFIG_DIR\\",\\"$HOME\\",\\"$TMPDIR\\"]}"
env | grep -q CANARY && exit 2
cat > /dev/null
"""


@pytest.mark.timeout(120)
def test_two_hundred_side_by_side_share_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = tmp_path / "claude"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    monkeypatch.setenv("CANARY_VARIABLE", CANARY)
    command = make_command(Options(cli_path=agent, isolation="hermetic"))
    folders: list[str] = []

    async def main() -> None:
        everyone_is_there = anyio.Event()

        async def one() -> None:
            async with ProcessTransport(command, grace=60.0) as transport:
                message = await anext(transport.messages())
                assert isinstance(message, UnknownMessage)
                folders.extend(message.data["folders"])
                if len(folders) == 600:
                    everyone_is_there.set()
                await everyone_is_there.wait()
            assert transport.returncode == 0

        async with anyio.create_task_group() as tasks:
            for _ in range(200):
                tasks.start_soon(one)

    anyio.run(main)
    assert len(set(folders)) == 600
    assert not any(Path(folder).exists() for folder in folders)


def plant_canaries(home: Path, project: Path) -> None:
    """What a user, or a project, may have lying around that would change what an agent does."""
    hooks = {"SessionStart": [{"hooks": [{"type": "command", "command": f"echo {CANARY}"}]}]}
    settings = {"hooks": hooks, "env": {"CANARY": CANARY}, "outputStyle": CANARY}
    servers = {"mcpServers": {CANARY: {"command": "false"}}}
    files = {
        home / ".claude.json": json.dumps(servers),
        home / ".claude" / ".claude.json": json.dumps(servers),
        home / ".claude" / "settings.json": json.dumps(settings),
        home / ".claude" / "CLAUDE.md": f"User memory {CANARY}",
        home / ".claude" / "agents" / "spy.md": f"---\nname: {CANARY}\ndescription: spy\n---\n{CANARY}",
        home / ".claude" / "skills" / "spy" / "SKILL.md": f"---\nname: spy\ndescription: {CANARY}\n---\n",
        home / ".claude" / "commands" / f"{CANARY}.md": CANARY,
        project / ".claude" / "settings.json": json.dumps(settings),
        project / ".claude" / "settings.local.json": json.dumps(settings),
        project / ".claude" / "agents" / "spy.md": f"---\nname: {CANARY}\ndescription: spy\n---\n{CANARY}",
        project / ".mcp.json": json.dumps(servers),
        project / "CLAUDE.md": f"Project memory {CANARY}",
        project / "CLAUDE.local.md": f"Local memory {CANARY}",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def one_turn(options: Options, environ: dict[str, str]) -> list[Any]:
    """All messages of a single turn with the real program."""
    peer = Peer("host")
    received: list[Any] = []
    async with ProcessTransport(make_command(options, environ=environ)) as transport:
        peer.request(make_initialize(options))
        peer.send(user_message("hello"))
        await transport.send(peer.take_output())
        while not any(isinstance(message, ResultMessage) for message in received):
            received += peer.receive(await transport.receive())
    return received


@pytest.mark.real
@pytest.mark.parametrize("isolation", ["hermetic", "inherit"])
def test_the_real_program_sees_nothing_of_the_machine(isolation: Any, tmp_path: Path) -> None:
    """And the canaries are in places that it looks at: without isolation it finds them."""
    program = require_program()
    home, project = tmp_path / "home", tmp_path / "project"
    plant_canaries(home, project)
    before = {path for path in home.rglob("*")}  # noqa: C416
    is_hermetic = isolation == "hermetic"
    with MessagesApi([say("hi")]) as api:
        environ = clean_environment(home) | {"CANARY_VARIABLE": CANARY}
        options = Options(
            cli_path=program,
            cwd=project,
            isolation=isolation,
            setting_sources=() if is_hermetic else ("user", "project", "local"),
            env={
                name: environ[name]
                for name in ("ANTHROPIC_API_KEY", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "IS_SANDBOX")
            }
            | {"ANTHROPIC_BASE_URL": api.url},
        )
        messages = anyio.run(one_turn, options, environ)
    bodies = [request.body for request in api.requests]
    seen = json.dumps(bodies) + "".join(str(message) for message in messages)
    (init,) = [message for message in messages if isinstance(message, InitMessage)]
    if is_hermetic:
        assert CANARY not in seen
        assert init.data["mcp_servers"] == []
        assert {path for path in home.rglob("*")} == before  # noqa: C416
    else:
        assert CANARY in seen
    assert os.environ.get("CANARY_VARIABLE") is None
