"""Files and terminals through the editor, MCP servers of the editor, and forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

import outrider
from outrider.testing import Simulator, say, use_tool
from tests.acp.editor import Editor, Refused, served
from tests.acp.test_sessions import PIXEL, begin, options

pytestmark = pytest.mark.anyio

ABLE = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}


class Buffers:
    """The files of an editor, which are not saved, and its terminals."""

    def __init__(self, editor: Editor, **files: str) -> None:
        self.files = files
        self.terminals: list[str] = []
        self.killed: list[str] = []
        self.released: list[str] = []
        self.exit: dict[str, Any] | None = {"exitCode": 0}
        self.opens = anyio.Event()
        self.opens.set()
        for name in ("read_text_file", "write_text_file"):
            editor.handlers[f"fs/{name}"] = getattr(self, name)
        for name in ("create", "wait_for_exit", "output", "kill", "release"):
            editor.handlers[f"terminal/{name}"] = getattr(self, name)

    async def read_text_file(self, params: dict[str, Any]) -> Any:
        lines = [f"{line}\n" for line in self.files[Path(params["path"]).name].split("\n")[:-1]]
        first = params.get("line", 1) - 1
        return {"content": "".join(lines[first : first + params.get("limit", len(lines))])}

    async def write_text_file(self, params: dict[str, Any]) -> Any:
        self.files[Path(params["path"]).name] = params["content"]

    async def create(self, params: dict[str, Any]) -> Any:
        self.terminals.append(params["args"][-1])
        id = f"terminal-{len(self.terminals)}"
        await self.opens.wait()
        return {"terminalId": id}

    async def wait_for_exit(self, _: dict[str, Any]) -> Any:
        if self.exit is None:
            await anyio.sleep_forever()
        return self.exit

    async def output(self, params: dict[str, Any]) -> Any:
        return {"output": f"ran {self.terminals[-1]}\n", "truncated": False, "exitStatus": self.exit}

    async def kill(self, params: dict[str, Any]) -> Any:
        self.killed.append(params["terminalId"])

    async def release(self, params: dict[str, Any]) -> Any:
        self.released.append(params["terminalId"])
        return {}


async def test_files_as_they_are_in_the_editor(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("saved\n")
    agent = Simulator(
        [
            use_tool("mcp__editor__read_file", file_path=str(tmp_path / "a.txt")),
            use_tool(
                "mcp__editor__edit_file",
                file_path=str(tmp_path / "a.txt"),
                old_string="un",
                new_string="not ",
            ),
            use_tool(
                "mcp__editor__edit_file", file_path=str(tmp_path / "a.txt"), old_string="x", new_string="y"
            ),
            use_tool("mcp__editor__write_file", file_path=str(tmp_path / "b.txt"), content="new"),
            say("Done."),
        ]
    )
    async with served(outrider.Options(transport=agent), editor_tools=True) as editor:
        buffers = Buffers(editor, **{"a.txt": "unsaved\n"})
        await begin(editor, tmp_path, **ABLE)
        editor.answer_permission("allow_once", "allow_once", "allow_once")
        await editor.prompt("Edit.")
        assert "unsaved" in str(agent.requests[1].tool_results[0]["content"])
        assert buffers.files == {"a.txt": "not saved\n", "b.txt": "new"}
        assert "not in the file" in str(agent.requests[3].tool_results)
        # A file in the folder is read without a question, as Claude Code reads it.
        assert [each["toolCall"]["title"] for _, each in editor.asked if "toolCall" in each] == [
            "Edit a.txt",
            "Edit a.txt",
            "Write b.txt",
        ]
        assert [each["kind"] for each in editor.of("tool_call")] == ["read", "edit", "edit", "edit"]
        assert editor.of("tool_call")[1]["content"][0]["type"] == "diff"
    assert (tmp_path / "a.txt").read_text() == "saved\n"


async def test_a_command_runs_in_a_terminal_of_the_editor(tmp_path: Path) -> None:
    agent = Simulator(
        [
            use_tool("mcp__editor__run_command", command="make test"),
            use_tool("mcp__editor__run_command", command="make test"),
            use_tool("mcp__editor__run_command", command="make other"),
            say("Done."),
        ]
    )
    async with served(outrider.Options(transport=agent), editor_tools=True) as editor:
        buffers = Buffers(editor)
        buffers.exit = {"exitCode": 2}
        await begin(editor, tmp_path, **ABLE)
        editor.answer_permission("allow_always", "reject_once")
        await editor.prompt("Test.")
        assert buffers.terminals == ["make test", "make test"]
        assert buffers.released == ["terminal-1", "terminal-2"]
        call = editor.call_of(editor.of("tool_call")[0]["toolCallId"])
        assert call["title"] == "make test"
        assert call["content"] == [{"type": "terminal", "terminalId": "terminal-1"}]
        assert call["status"] == "failed"
        assert "Exit code 2" in str(agent.requests[1].tool_results)


async def test_a_command_that_takes_too_long_or_is_cancelled(tmp_path: Path) -> None:
    script = [
        use_tool("mcp__editor__run_command", command="sleep 100", timeout=1000),
        say("It took too long."),
        use_tool("mcp__editor__run_command", command="sleep 100"),
        say("No."),
    ]
    async with served(options(script, permission=lambda _: True), editor_tools=True) as editor:
        buffers = Buffers(editor)
        buffers.exit = None
        await begin(editor, tmp_path, **ABLE)
        await editor.prompt("Sleep.")
        assert editor.text == "It took too long."
        assert buffers.killed == ["terminal-1"]
        prompt = await editor.begin_prompt("Again.")
        await editor.until(lambda: len(editor.asked_of("terminal/create")) == 2)
        await editor.tell("session/cancel", sessionId=editor.session_id)
        assert (await editor.end(prompt))["stopReason"] == "cancelled"
        await editor.until(lambda: len(editor.asked_of("terminal/release")) == 2)


async def test_a_terminal_that_opens_while_its_prompt_is_cancelled_is_released(tmp_path: Path) -> None:
    script = [use_tool("mcp__editor__run_command", command="sleep 100"), say("No.")]
    async with served(options(script, permission=lambda _: True), editor_tools=True) as editor:
        buffers = Buffers(editor)
        buffers.opens = anyio.Event()
        await begin(editor, tmp_path, **ABLE)
        prompt = await editor.begin_prompt("Sleep.")
        await editor.until(lambda: editor.asked_of("terminal/create"))
        await editor.tell("session/cancel", sessionId=editor.session_id)
        assert (await editor.end(prompt))["stopReason"] == "cancelled"
        buffers.opens.set()
        opened = {"sessionId": editor.session_id, "terminalId": "terminal-1"}
        await editor.until(lambda: editor.asked_of("terminal/release") == [opened])


async def test_a_terminal_that_cannot_be_released_has_run_the_command(tmp_path: Path) -> None:
    agent = Simulator([use_tool("mcp__editor__run_command", command="make"), say("Done.")])
    async with served(
        outrider.Options(transport=agent, permission=lambda _: True), editor_tools=True
    ) as editor:
        Buffers(editor)
        del editor.handlers["terminal/release"]
        await begin(editor, tmp_path, **ABLE)
        await editor.prompt("Go.")
        assert "ran make" in str(agent.requests[1].tool_results)


async def test_lines_are_numbered_as_editors_do(tmp_path: Path) -> None:
    agent = Simulator([use_tool("mcp__editor__read_file", file_path=str(tmp_path / "a.c")), say("Done.")])
    async with served(outrider.Options(transport=agent), editor_tools=True) as editor:
        Buffers(editor, **{"a.c": "one\n\ftwo\u2028still\n\nfour\n"})
        await begin(editor, tmp_path, **ABLE)
        await editor.prompt("Read.")
        (read,) = agent.requests[1].tool_results
        assert "     2\t\ftwo\u2028still\n     3\t\n     4\tfour" in str(read["content"][0]["text"])


async def test_the_rules_of_the_options_hold_for_the_tools_of_the_editor(tmp_path: Path) -> None:
    script = [
        use_tool("mcp__editor__run_command", command="rm -r x"),
        use_tool("mcp__editor__run_command", command="git status"),
        use_tool("mcp__editor__write_file", file_path=str(tmp_path / "a.txt"), content="1"),
        use_tool("mcp__editor__write_file", file_path="/etc/passwd", content="1"),
        say("Done."),
    ]
    rules: dict[str, Any] = {"disallowed_tools": ["Bash(rm *)"], "allowed_tools": ["Bash(git *)"]}
    for mode in ("acceptEdits", "bypassPermissions"):
        more = {"permission_mode": mode, "allow_dangerously_skip_permissions": mode != "acceptEdits"}
        async with served(options(script, **rules, **more), editor_tools=True) as editor:
            buffers = Buffers(editor)
            await begin(editor, tmp_path, **ABLE)
            editor.answer_permission("reject_once")
            await editor.prompt("Go.")
            assert buffers.terminals == ["git status"]
            if mode == "acceptEdits":
                assert list(buffers.files) == ["a.txt"]
                assert [each["toolCall"]["title"] for _, each in editor.asked if "toolCall" in each] == [
                    "Write /etc/passwd"
                ]


async def test_pictures_are_read_from_the_disk(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PIXEL)
    agent = Simulator([use_tool("mcp__editor__read_file", file_path=str(tmp_path / "a.png")), say("Nice.")])
    async with served(outrider.Options(transport=agent), editor_tools=True) as editor:
        await begin(editor, tmp_path, **ABLE)
        await editor.prompt("Look.")
        assert agent.requests[1].tool_results[0]["content"][0]["type"] == "image"


@pytest.mark.parametrize("capabilities", [{}, {"fs": {"readTextFile": True}}], ids=["none", "reading"])
async def test_the_editor_offers_what_it_has(tmp_path: Path, capabilities: dict[str, Any]) -> None:
    agent = Simulator([say("Hi.")])
    async with served(outrider.Options(transport=agent), editor_tools=True) as editor:
        await begin(editor, tmp_path, **capabilities)
        await editor.prompt("Hi.")
        names = set(agent.requests[0].tools)
        assert ("mcp__editor__read_file" in names) is bool(capabilities)
        assert not {"mcp__editor__write_file", "mcp__editor__edit_file", "mcp__editor__run_command"} & names
        assert "Bash" in names
        assert ("Read" in names) is not bool(capabilities)


async def test_hooks_for_replaced_tools_are_refused(tmp_path: Path) -> None:
    @outrider.hook("PreToolUse", matcher="Bash|Write")
    def check(_: object) -> None: ...

    async with served(options([], hooks=[check]), editor_tools=True) as editor:
        await editor.initialize(**ABLE)
        with pytest.raises(Refused, match="mcp__editor__run_command"):
            await editor.new(tmp_path)


async def test_mcp_servers_of_the_editor(tmp_path: Path) -> None:
    agent = Simulator([say("Hi.")])
    servers = [
        {"name": "local", "command": "/bin/true", "args": ["-x"], "env": [{"name": "A", "value": "1"}]},
        {"type": "http", "name": "web", "url": "https://example.com/mcp", "headers": []},
        {
            "type": "sse",
            "name": "old",
            "url": "https://example.com/sse",
            "headers": [{"name": "X", "value": "y"}],
        },
    ]
    seen: list[outrider.Session] = []

    def permit(request: outrider.PermissionRequest) -> bool:
        seen.append(request.session)
        return True

    agent = Simulator([use_tool("Bash", command="touch x"), say("Hi.")])
    made = outrider.Options(
        transport=agent,
        permission=permit,
        mcp_servers={"web": outrider.HttpServer(url="https://mine.example")},
    )
    async with served(made) as editor:
        await editor.initialize()
        await editor.new(tmp_path, mcpServers=servers)
        await editor.prompt("Hi")
        given: Any = seen[0].options.mcp_servers
        assert given["local"] == outrider.StdioServer(command="/bin/true", args=("-x",), env={"A": "1"})
        assert given["old"] == outrider.SseServer(url="https://example.com/sse", headers={"X": "y"})
        assert given["web"].url == "https://mine.example"
        for bad in (
            {"type": "acp", "name": "a", "serverId": "1"},
            {"type": "http", "name": "b", "url": "x", "headers": []},
        ):
            with pytest.raises(Refused) as refused:
                await editor.new(tmp_path, mcpServers=[bad])
            assert refused.value.code == -32602


async def test_no_guard_is_lost(tmp_path: Path) -> None:
    policy = outrider.Policy.of({"deny": "Bash"})
    for fields in (
        {"hooks": [policy.guard()]},
        {"approvals": outrider.Approvals("memory:")},
        {"permission_prompts": "none"},
    ):
        async with served(options([], **fields), editor_tools=True) as editor:
            await editor.initialize(**ABLE)
            with pytest.raises(Refused) as refused:
                await editor.new(tmp_path)
            assert refused.value.code == -32602
