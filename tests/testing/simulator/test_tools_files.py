"""The tools of the simulated agent for files, and which tools a session has."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import anyio
import pytest

import outrider
from outrider.testing import RealAgent, Simulator, say, use_tool
from outrider.testing._simulator.tools.schemas import SPECS
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


def picture(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = b"".join(b"\0" + b"\xff\0\0" * width for _ in range(height))
    data = zlib.compress(rows)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


async def test_a_picture_is_shown_to_the_model(world: World) -> None:
    raw = picture(3, 2)
    (world.cwd / "p.png").write_bytes(raw)
    outcome = await world.use("Read", file_path="p.png")
    data = base64.b64encode(raw).decode()
    source = {"type": "base64", "data": data, "media_type": "image/png"}
    assert outcome.content == [{"type": "image", "source": source}]
    assert isinstance(outcome.detail, dict)
    assert outcome.detail["file"] == {
        "base64": data,
        "type": "image/png",
        "originalSize": len(raw),
        "dimensions": {"originalWidth": 3, "originalHeight": 2, "displayWidth": 3, "displayHeight": 2},
    }


async def test_a_written_file_keeps_its_rights(world: World) -> None:
    target = world.cwd / "target.sh"
    target.write_text("old")
    target.chmod(0o750)
    await world.use("Write", file_path="target.sh", content="new")
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o750
    assert [path.name for path in world.cwd.iterdir()] == ["target.sh"]


@pytest.mark.parametrize(
    "tool, more", [("Write", {"content": "new"}), ("Edit", {"old_string": "old", "new_string": "new"})]
)
async def test_nothing_is_written_through_a_link(tool: str, more: dict[str, str], world: World) -> None:
    target = world.cwd / "target.txt"
    target.write_text("old")
    (world.cwd / "link").symlink_to(target)
    outcome = await world.use(tool, file_path="link", **more)
    assert outcome.is_error
    assert f"Write to the link's target path instead: {target.resolve()}." in str(outcome.content)
    assert target.read_text() == "old"


async def test_a_file_that_changed_since_it_was_read_is_not_written_over(world: World) -> None:
    (world.cwd / "a.txt").write_text("one\n")
    await world.use("Read", file_path="a.txt")
    (world.cwd / "a.txt").write_text("one\ntwo\n")
    outcome = await world.use("Write", file_path="a.txt", content="mine")
    assert "File has been modified since read" in str(outcome.content)
    outcome = await world.use("Edit", file_path="a.txt", old_string="one", new_string="1")
    assert "the file had been modified on disk since you last read it" in str(outcome.content)
    assert (world.cwd / "a.txt").read_text() == "1\ntwo\n"


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


async def test_texts_of_many_equal_lines_are_compared_in_no_time(world: World) -> None:
    (world.cwd / "a.txt").write_text("same\n" * 20_000)
    await world.use("Read", file_path="a.txt", allow_large=True)
    with anyio.fail_after(20):
        outcome = await world.use(
            "Write", file_path="a.txt", content="same\n" * 10_000 + "new\n" + "same\n" * 10_000
        )
    assert isinstance(outcome.detail, dict)
    assert outcome.detail["structuredPatch"] == [
        {
            "oldStart": 9998,
            "oldLines": 6,
            "newStart": 9998,
            "newLines": 7,
            "lines": [" same"] * 3 + ["+new"] + [" same"] * 3,
        }
    ]


async def test_a_file_that_cannot_be_written_is_an_error_for_the_model(world: World) -> None:
    (world.cwd / "file").write_text("x")
    outcome = await world.use("Write", file_path="file/below", content="x")
    assert outcome.is_error
    assert "file/below" in str(outcome.content)


@pytest.mark.parametrize(
    "name,given",
    [("WebFetch", {"url": "https://example.com", "prompt": "p"}), ("WebSearch", {"query": "ab"})],
)
async def test_the_network_is_never_reached(world: World, name: str, given: dict[str, Any]) -> None:
    outcome = await world.use(name, **given)
    assert outcome.is_error
    assert "does not reach the network" in str(outcome.content)


async def test_a_tool_that_is_not_simulated_says_so(world: World) -> None:
    outcome = await world.use("CronList")
    assert outcome.is_error
    assert outcome.content == "The simulated agent does not carry out CronList."


async def test_rules_of_settings_take_tools_away(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"permissions": {"deny": ["Write", "Edit(/etc/**)"]}})
    names = [spec.name for spec in world.tools.specs()]
    assert "Write" not in names
    assert "Edit" in names
    assert world.tools.owns("Write")
    assert not world.tools.owns("mcp__tools__lookup")


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
            tool["name"]: without_words(tool["input_schema"])
            for tool in agent.api.main_requests[0].body.get("tools", [])
        }
    world = World(tmp_path, tools=tools if tools is None else tuple(tools), disallowed_tools=disallowed)
    specs = world.tools.specs()
    assert [spec.name for spec in specs] == [name for name in init.tools if name in SPECS]
    for spec in specs:
        if spec.name in schemas and "properties" in spec.input_schema:
            assert spec.input_schema == schemas[spec.name]


def without_words(schema: Any) -> Any:
    """A schema without descriptions; a property of that name stays."""
    if not isinstance(schema, dict):
        return [without_words(part) for part in schema] if isinstance(schema, list) else schema
    return {
        key: without_words(value)
        for key, value in schema.items()
        if not (key == "description" and isinstance(value, str))
    }


async def test_a_notebook_that_is_none_is_an_error_for_the_model(world: World) -> None:
    (world.cwd / "a.ipynb").write_text(json.dumps(["no cells"]))
    assert (await world.use("Read", file_path="a.ipynb")).is_error
