"""The tools of the simulated agent for files, and which tools a session has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

import outrider
from outrider.testing import RealAgent, Simulator, say, use_tool
from outrider.wire import InitMessage
from tests.real_program import Conversation, require_program
from tests.testing.simulator.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[("asyncio", {"use_uvloop": False})], ids=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    # None of these waits for anything.
    return request.param


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_written_file_keeps_its_rights(world: World) -> None:
    target = world.cwd / "target.sh"
    target.write_text("old")
    target.chmod(0o750)
    await world.use("Write", file_path="target.sh", content="new")
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o750
    assert [path.name for path in world.cwd.iterdir()] == ["target.sh"]


async def test_a_file_of_which_a_part_was_read_last_is_not_known(world: World) -> None:
    (world.cwd / "a.txt").write_text("one\ntwo\n")
    await world.use("Read", file_path="a.txt")
    await world.use("Read", file_path="a.txt", offset=2, limit=1)
    outcome = await world.use("Edit", file_path="a.txt", old_string="one", new_string="1")
    assert outcome.content == "The file a.txt has been updated successfully."


ODD_PATHS = {
    "nul": "a\0b",
    "half a character": "\ud800",
    "long": "x" * 300,
    "deep": "x/" * 3000,
    "nobody's home": "~nobody-at-all/x",
    "circle": "circle/x",
}


@pytest.mark.parametrize("path", ODD_PATHS.values(), ids=list(ODD_PATHS))
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
async def test_a_path_that_cannot_be_is_an_error_for_the_model(path: str, mode: Any, tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    steps = [
        use_tool("Read", file_path=path),
        use_tool("Edit", file_path=path, old_string="a", new_string="b"),
        use_tool("Bash", command=f"cat {path}"),
        use_tool("Write", file_path=f"circle/{path}", content="x"),
    ]
    agent = Simulator([*steps, say("still there")])
    with anyio.fail_after(30):
        async with outrider.Session(transport=agent, cwd=tmp_path, permission_mode=mode) as session:
            assert (await session.ask("try")).text == "still there"
    results = [result for request in agent.requests for result in request.tool_results]
    assert [result["is_error"] for result in results] == [True] * len(steps)


async def test_a_file_that_cannot_be_written_is_an_error_for_the_model(world: World) -> None:
    (world.cwd / "file").write_text("x")
    outcome = await world.use("Write", file_path="file/below", content="x")
    assert outcome.is_error
    assert "file/below" in str(outcome.content)


async def test_a_tool_that_is_not_simulated_says_how_to_give_its_result(world: World) -> None:
    outcome = await world.use("CronList")
    assert outcome.is_error
    assert outcome.content == world.lines[0]
    assert 'Give its result in the script: `use_tool("CronList", …, tool_result="…")`.' in world.lines[0]


async def test_the_script_may_give_the_result_of_any_tool(tmp_path: Path) -> None:
    steps = [
        use_tool("CronList", tool_result="none"),
        use_tool("Read", file_path="a.txt", tool_result="not really"),
        use_tool("Read", file_path="a.txt"),
    ]
    (tmp_path / "a.txt").write_text("really")
    agent = Simulator([*steps, say("done")])
    async with outrider.Session(transport=agent, cwd=tmp_path) as session:
        assert (await session.ask("try")).text == "done"
    results = [result["content"] for request in agent.requests for result in request.tool_results]
    assert results == ["none", "not really", "1\treally"]


async def test_rules_of_settings_take_tools_away(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"permissions": {"deny": ["Write", "Edit(/etc/**)"]}})
    names = [spec.name for spec in world.tools.specs()]
    assert "Write" not in names
    assert "Edit" in names
    assert world.tools.owns("Write")
    assert not world.tools.owns("mcp__tools__lookup")


@pytest.mark.real
@pytest.mark.parametrize(
    "tools,disallowed",
    [
        (None, ()),
        (["Bash", "Read", "Glob", "Grep", "TaskCreate", "NoSuch"], ()),
        (["Read", "Write"], ("Write",)),
        ([], ()),
        (None, ("Bash",)),
        (None, ("Bash(rm *)", "Grep", "Write")),
    ],
    ids=["all", "chosen", "chosen and disallowed", "none", "no Bash", "disallowed"],
)
async def test_a_session_has_the_tools_that_it_has_in_the_program(
    tmp_path: Path, tools: list[str] | None, disallowed: tuple[str, ...]
) -> None:
    with RealAgent([say("ok")], program=require_program()) as agent:
        options = agent.options(tools=tools, disallowed_tools=disallowed)
        async with Conversation(options) as conversation:
            await conversation.turn("go")
        init = next(event for event in conversation.received if isinstance(event, InitMessage))
        schemas = {
            tool["name"]: outline(tool["input_schema"])
            for tool in agent.api.main_requests[0].body.get("tools", [])
        }
    world = World(tmp_path, tools=tools if tools is None else tuple(tools), disallowed_tools=disallowed)
    specs = world.tools.specs()
    assert [spec.name for spec in specs] == [
        name for name in init.tools if name in {spec.name for spec in specs}
    ]
    for spec in specs:
        if spec.name in schemas and "properties" in spec.input_schema:
            assert outline(spec.input_schema) == schemas[spec.name]


def outline(schema: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The types of all properties, and which of them are required."""
    types = {name: each.get("type") for name, each in schema["properties"].items()}
    return types, schema.get("required", [])
