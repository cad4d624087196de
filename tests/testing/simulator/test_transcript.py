"""Sessions of the simulated agent on disk: written, read, and handed to the program and back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from outrider import Session
from outrider.testing import RealAgent, Simulator, answer, say, use_tool
from outrider.testing._simulator.transcript import Transcript
from outrider.transcripts import project_folder
from outrider.wire import AssistantMessage
from tests.real_program import Conversation, require_program
from tests.testing.simulator.world import World


def new_id() -> str:
    return str(uuid4())


def model_message(message_id: str, *content: dict[str, Any]) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5-5",
        "content": list(content),
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def call(call_id: str, command: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": command}}


def result(call_id: str, content: str) -> dict[str, Any]:
    return {"tool_use_id": call_id, "type": "tool_result", "content": content, "is_error": False}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content[0] if isinstance(content[0], str) else list(content)}


def talk(transcript: Transcript) -> list[str]:
    """Two turns, the second with two calls side by side; gives the ids of the model's answers."""
    ids = [new_id() for _ in range(2)]
    transcript.append_user(user("first"), uuid=new_id())
    transcript.append_assistant(model_message("msg_1", text("one")), uuid=ids[0])
    transcript.append_user(user("second"), uuid=new_id())
    transcript.append_assistant(model_message("msg_2", text("I look")), uuid=new_id())
    transcript.append_assistant(model_message("msg_2", call("toolu_a", "echo a")), uuid=new_id())
    transcript.append_assistant(model_message("msg_2", call("toolu_b", "echo b")), uuid=new_id())
    transcript.append_user(user(result("toolu_b", "b")), uuid=new_id(), tool_use_result={"stdout": "b"})
    transcript.append_user(user(result("toolu_a", "a")), uuid=new_id(), tool_use_result={"stdout": "a"})
    transcript.append_assistant(model_message("msg_3", text("two")), uuid=ids[1])
    return ids


TALK = [
    {"role": "user", "content": "first"},
    {"role": "assistant", "content": [text("one")]},
    {"role": "user", "content": "second"},
    {
        "role": "assistant",
        "content": [text("I look"), call("toolu_a", "echo a"), call("toolu_b", "echo b")],
    },
    {"role": "user", "content": [result("toolu_b", "b"), result("toolu_a", "a")]},
    {"role": "assistant", "content": [text("two")]},
]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.transcript.open_new(world.session_id)
    return world


def again(world: World, **flags: Any) -> World:
    """Another run in the same folders."""
    return World(world.config_dir.parent.parent, **flags)


def test_lines_are_where_the_program_keeps_them_and_hang_together(world: World) -> None:
    talk(world.transcript)
    path = project_folder(world.config_dir, world.cwd) / f"{world.session_id}.jsonl"
    assert world.transcript.path == path
    written = lines(path)
    by_id = {line["uuid"]: line for line in written}
    assert len(by_id) == len(written) == 9
    assert written[0]["parentUuid"] is None
    assert all(line["parentUuid"] in by_id for line in written[1:])
    assert {line["sessionId"] for line in written} == {world.session_id}
    assert [line["turnPosition"]["turnIndex"] for line in written if "turnPosition" in line] == [1, 2]
    results = [line for line in written if "toolUseResult" in line]
    for line in results:
        calls = by_id[line["sourceToolAssistantUUID"]]["message"]["content"]
        assert calls[0]["id"] == line["message"]["content"][0]["tool_use_id"]
        assert line["parentUuid"] == line["sourceToolAssistantUUID"]


def test_a_session_is_there_only_from_its_first_line_on(world: World) -> None:
    assert not world.transcript.path.exists()
    assert again(world).transcript.latest() is None


def test_a_session_can_be_resumed(world: World) -> None:
    talk(world.transcript)
    other = again(world).transcript
    assert other.resume(world.session_id) == (world.session_id, TALK)
    other.append_user(user("third"), uuid=new_id())
    _, messages = again(world).transcript.resume(world.session_id)
    assert messages == [*TALK, {"role": "user", "content": "third"}]


def test_a_session_can_be_resumed_from_another_folder_and_stays_in_its_file(world: World) -> None:
    talk(world.transcript)
    elsewhere = World(world.config_dir.parent.parent, cwd=world.cwd / "sub")
    assert elsewhere.transcript.resume(world.session_id)[1] == TALK
    elsewhere.transcript.append_user(user("third"), uuid=new_id())
    assert elsewhere.transcript.path == world.transcript.path
    assert lines(world.transcript.path)[-1]["message"]["content"] == "third"


def test_a_session_can_be_resumed_at_a_message(world: World) -> None:
    first, _ = talk(world.transcript)
    other = again(world).transcript
    assert other.resume(world.session_id, at=first)[1] == TALK[:2]
    other.append_user(user("instead"), uuid=new_id())
    assert lines(other.path)[-1]["parentUuid"] == first
    expected = [*TALK[:2], {"role": "user", "content": "instead"}]
    assert again(world).transcript.resume(world.session_id)[1] == expected


def test_a_fork_has_the_lines_under_its_own_id_and_leaves_the_session_alone(world: World) -> None:
    talk(world.transcript)
    before = world.transcript.path.read_bytes()
    fork = new_id()
    other = again(world).transcript
    assert other.resume(world.session_id, fork_as=fork) == (fork, TALK)
    other.append_user(user("apart"), uuid=new_id())
    assert world.transcript.path.read_bytes() == before
    assert {line["sessionId"] for line in lines(other.path)} == {fork}
    assert again(world).transcript.resume(fork)[1] == [*TALK, {"role": "user", "content": "apart"}]


def test_the_latest_session_is_the_one_that_was_written_last(world: World) -> None:
    talk(world.transcript)
    second = again(world)
    second.transcript.open_new(second.session_id)
    talk(second.transcript)
    # The clock of files is coarse.
    os.utime(world.transcript.path, (1_700_000_000, 1_700_000_000))
    assert again(world).transcript.latest() == second.session_id
    os.utime(second.transcript.path, (1_600_000_000, 1_600_000_000))
    assert again(world).transcript.latest() == world.session_id
    elsewhere = World(world.config_dir.parent.parent, cwd=world.cwd / "sub")
    assert elsewhere.transcript.latest() is None


def test_a_session_can_be_resumed_by_its_title(world: World) -> None:
    talk(world.transcript)
    world.transcript.set_title("My talk")
    assert again(world).transcript.resume("My talk") == (world.session_id, TALK)


@pytest.mark.parametrize(
    "given,at,says",
    [
        ("99999999-3333-4444-8555-666666666666", None, "No conversation found with session ID: 99999999"),
        ("my-title", None, 'Provided value "my-title" is not a UUID and does not match any session title.'),
        ("", None, "Error: --resume requires a valid session ID or session title"),
        (None, "bbbbbbbb-0000-4000-8000-000000000099", "No message found with message.uuid of: bbbbbbbb"),
    ],
)
def test_what_cannot_be_resumed_is_refused_in_the_words_of_the_program(
    world: World, given: str | None, at: str | None, says: str
) -> None:
    talk(world.transcript)
    with pytest.raises(LookupError, match=says.replace("(", r"\(")):
        again(world).transcript.resume(world.session_id if given is None else given, at=at)


def test_an_id_that_is_taken_is_refused(world: World) -> None:
    talk(world.transcript)
    with pytest.raises(FileExistsError, match=f"Session ID {world.session_id} is already in use"):
        again(world).transcript.open_new(world.session_id)


def test_a_line_that_was_cut_off_does_not_matter(world: World) -> None:
    talk(world.transcript)
    with world.transcript.path.open("ab") as file:
        file.write(b'{"type":"user","uuid":"')
    assert again(world).transcript.resume(world.session_id)[1] == TALK


def test_a_call_that_was_never_answered_is_left_out_when_resumed(world: World) -> None:
    world.transcript.append_user(user("go"), uuid=new_id())
    world.transcript.append_assistant(model_message("msg_1", text("I look")), uuid=new_id())
    world.transcript.append_assistant(model_message("msg_1", call("toolu_a", "x")), uuid=new_id())
    _, messages = again(world).transcript.resume(world.session_id)
    assert messages == [{"role": "user", "content": "go"}, {"role": "assistant", "content": [text("I look")]}]


def test_the_cost_of_a_session_goes_on(world: World) -> None:
    talk(world.transcript)
    world.transcript.close({"totalCostUSD": 0.25})
    other = again(world).transcript
    assert other.cost_so_far == 0.0
    other.resume(world.session_id)
    assert other.cost_so_far == 0.25
    assert [line["type"] for line in lines(other.path)[-2:]] == ["last-prompt", "cost-state"]


def test_a_cleared_session_goes_on_in_another_file(world: World) -> None:
    talk(world.transcript)
    second = new_id()
    world.transcript.restart(second)
    world.transcript.append_user(user("anew"), uuid=new_id())
    assert world.transcript.path.stem == second
    assert lines(world.transcript.path)[0]["parentUuid"] is None
    assert again(world).transcript.resume(world.session_id)[1] == TALK


def test_nothing_is_written_if_it_is_not_wanted(tmp_path: Path) -> None:
    world = World(tmp_path, no_session_persistence=True)
    world.transcript.open_new(world.session_id)
    world.transcript.start_agent("a1", {"agentType": "helper"})
    talk(world.transcript)
    world.transcript.close({"totalCostUSD": 1.0})
    assert list((world.config_dir).rglob("*.jsonl")) == []


def test_subagents_have_files_of_their_own(world: World) -> None:
    talk(world.transcript)
    path = world.transcript.start_agent("a1", {"agentType": "helper", "toolUseId": "toolu_x"})
    world.transcript.append_user(user("sub"), uuid=new_id(), agent_id="a1")
    world.transcript.append_assistant(
        model_message("msg_9", call("toolu_s", "x")), uuid=new_id(), agent_id="a1"
    )
    world.transcript.append_user(user(result("toolu_s", "y")), uuid=new_id(), agent_id="a1")
    world.transcript.finish_agent("a1")
    written = lines(path)
    assert path == world.transcript.path.with_suffix("") / "subagents" / "agent-a1.jsonl"
    assert [line["parentUuid"] for line in written] == [None, *(line["uuid"] for line in written[:-1])]
    assert {(line["isSidechain"], line["agentId"]) for line in written} == {(True, "a1")}
    sidecar = json.loads(path.with_suffix(".meta.json").read_text())
    assert sidecar == {"agentType": "helper", "toolUseId": "toolu_x", "finished": True}
    assert again(world).transcript.resume(world.session_id)[1] == TALK


def test_a_mirror_shows_every_line_of_every_file_once(tmp_path: Path) -> None:
    world = World(tmp_path, session_mirror=True)
    world.transcript.open_new(world.session_id)
    path = world.transcript.start_agent("a1", {"agentType": "helper"})
    talk(world.transcript)
    world.transcript.append_user(user("sub"), uuid=new_id(), agent_id="a1")
    world.transcript.flush()
    world.transcript.flush()
    world.transcript.close({"totalCostUSD": 0.5})
    shown: dict[str, list[Any]] = {}
    for frame in world.frames:
        assert frame["type"] == "transcript_mirror"
        assert frame["entries"]
        shown.setdefault(frame["filePath"], []).extend(frame["entries"])
    assert shown[str(world.transcript.path)] == lines(world.transcript.path)
    assert shown[str(path)] == [{"type": "agent_metadata", "agentType": "helper"}, *lines(path)]
    assert set(shown) == {str(world.transcript.path), str(path)}


# With the program


async def converse(agent: RealAgent, *prompts: str, **fields: Any) -> tuple[str, list[AssistantMessage]]:
    """Turns with the program: the session's id and what the model said."""
    session_id = ""
    options = agent.options(permission_mode="bypassPermissions", **fields)
    with anyio.fail_after(60):
        async with Conversation(options) as conversation:
            for prompt in prompts:
                session_id = (await conversation.turn(prompt)).session_id
            said = [event for event in conversation.received if isinstance(event, AssistantMessage)]
    return session_id, said


def spoken(messages: list[Any]) -> list[tuple[str, list[str]]]:
    """Who said which texts and called what, without what the program adds of its own."""
    made: list[tuple[str, list[str]]] = []
    for message in messages:
        content = message["content"]
        blocks = [text(content)] if isinstance(content, str) else content
        words = [
            str(block.get("text") or block.get("id") or block.get("content"))
            for block in blocks
            if block["type"] in ("text", "tool_use", "tool_result")
            and "<system-reminder>" not in str(block.get("text"))
        ]
        if words and message["role"] in ("user", "assistant"):
            made.append((message["role"], words))
    return made


async def in_program(agent: RealAgent, **fields: Any) -> tuple[str, list[tuple[str, list[str]]]]:
    """What the program tells the model when it goes on with a session."""
    session_id, _ = await converse(agent, "and now?", **fields)
    return session_id, spoken(agent.api.main_requests[-1].body["messages"])


SPOKEN = [
    ("user", ["first"]),
    ("assistant", ["one"]),
    ("user", ["second"]),
    ("assistant", ["I look", "toolu_a", "toolu_b"]),
    ("user", ["b", "a"]),
    ("assistant", ["two"]),
]
NOW = ("user", ["and now?"])


@pytest.fixture(params=[("asyncio", {"use_uvloop": False})], ids=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    # The files do not know what wrote them.
    return request.param


@pytest.mark.real
@pytest.mark.anyio
async def test_the_program_goes_on_with_a_session_of_the_simulated_agent() -> None:
    with RealAgent(otherwise=say("ok"), program=require_program()) as agent:
        world = World(agent.folder.parent)
        world.transcript.open_new(world.session_id)
        first, _ = talk(world.transcript)
        world.transcript.close({"totalCostUSD": 0.25, "modelUsage": {}})
        session_id, told = await in_program(agent, resume=world.session_id)
        assert session_id == world.session_id
        assert told == [*SPOKEN, NOW]
        assert again(world).transcript.resume(world.session_id)[1][-1] == {
            "role": "assistant",
            "content": [text("ok")],
        }
        forked, told = await in_program(agent, resume=world.session_id, fork_session=True)
        assert forked != world.session_id
        assert told[0] == SPOKEN[0]
        assert told[-1] == NOW
        assert again(world).transcript.resume(forked)[1][:2] == TALK[:2]
        _, told = await in_program(agent, resume=world.session_id, resume_session_at=first)
        assert told == [*SPOKEN[:2], NOW]


@pytest.mark.real
@pytest.mark.anyio
async def test_the_program_continues_the_last_session_of_the_simulated_agent() -> None:
    with RealAgent(otherwise=say("ok"), program=require_program()) as agent:
        world = World(agent.folder.parent)
        world.transcript.open_new(world.session_id)
        talk(world.transcript)
        session_id, told = await in_program(agent, continue_conversation=True)
        assert session_id == world.session_id
        assert told[0] == SPOKEN[0]


@pytest.mark.real
@pytest.mark.anyio
async def test_the_program_finds_a_session_of_the_simulated_agent_by_its_title() -> None:
    with RealAgent(otherwise=say("ok"), program=require_program()) as agent:
        world = World(agent.folder.parent)
        world.transcript.open_new(world.session_id)
        talk(world.transcript)
        world.transcript.set_title("My talk")
        session_id, _ = await in_program(agent, resume="My talk")
        assert session_id == world.session_id


@pytest.mark.real
@pytest.mark.anyio
async def test_a_session_goes_from_the_simulated_agent_to_the_program_and_back() -> None:
    with RealAgent(otherwise=say("from the program"), program=require_program()) as agent:
        simulator = Simulator(
            [use_tool("Bash", command="echo hi"), say("simulated"), say("back")], config_dir=agent.config_dir
        )
        allowed = ["Bash(echo *)"]
        with simulator, anyio.fail_after(60):
            async with Session(transport=simulator, cwd=agent.folder, allowed_tools=allowed) as session:
                first = await session.ask("first")
            assert first.text == "simulated"
            session_id, told = await in_program(agent, resume=first.session_id)
            assert session_id == first.session_id
            assert [words for _, words in told][2:] == [["hi"], ["simulated"], ["and now?"]]
            back = simulator.again()
            async with Session(transport=back, cwd=agent.folder, resume=session_id) as session:
                last = await session.ask("third")
            assert (last.text, last.session_id) == ("back", session_id)
            assert last.total_cost_usd > first.total_cost_usd
            told = spoken(back.requests[-1].body["messages"])
            assert [words for _, words in told][3:] == [
                ["simulated"],
                ["and now?"],
                ["from the program"],
                ["third"],
            ]


@pytest.mark.real
@pytest.mark.anyio
async def test_the_simulated_agent_goes_on_with_a_session_of_the_program() -> None:
    script = [
        say("one"),
        answer(
            say("I look"),
            use_tool("Bash", command="echo a", tool_use_id="toolu_a"),
            use_tool("Bash", command="echo b", tool_use_id="toolu_b"),
        ),
        say("two"),
    ]
    with RealAgent(script, program=require_program()) as agent:
        session_id, said = await converse(agent, "first", "second")
        world = World(agent.folder.parent)
        resumed, messages = world.transcript.resume(session_id)
        assert resumed == session_id == World(agent.folder.parent).transcript.latest()
        told = spoken(messages)
        assert [(who, sorted(words)) for who, words in told] == [
            (who, sorted(words)) for who, words in SPOKEN
        ]
        assert world.transcript.cost_so_far > 0
        fork = new_id()
        assert again(world).transcript.resume(session_id, fork_as=fork)[1] == messages
        at = again(world).transcript.resume(session_id, at=said[0].uuid)[1]
        assert spoken(at) == SPOKEN[:2]
