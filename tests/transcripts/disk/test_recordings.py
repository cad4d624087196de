"""A session that the real program wrote: three turns, one with calls side by side and one with a subagent;
then it was compacted, gone on with, and resumed.

What the program adds for the model is emptied, and paths are made up.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.transcripts._disk.read import Disk, Search
from outrider.transcripts._values import MessageRange
from outrider.wire import AssistantMessage, CompactBoundaryMessage, UserMessage

SESSION = "e0ef52c5-b615-4592-a5ab-aa6343859ea1"
AGENT = "aef16c071d1ed3ada"


@pytest.fixture
def disk() -> Disk:
    return Disk(Path(__file__).parent / "recordings")


def test_it_is_listed(disk: Disk) -> None:
    (info,) = disk.list()
    assert (info.id, info.project, info.title) == (SESSION, "-srv-project", "And again?")
    assert (info.first_prompt, info.cwd, info.git_branch) == ("My name is Ada.", "/srv/project", "HEAD")


def test_what_was_said_since_it_was_compacted(disk: Disk) -> None:
    said = [entry.text for entry in disk.read(SESSION)]
    assert said[0].startswith("This session is being continued.")
    assert said[-4:] == ["Who am I?", "You are Ada.", "And again?", "Again Ada."]
    assert [entry.text for entry in disk.read(SESSION, wanted=MessageRange(last=3))] == said[-3:]


def test_all_that_was_said(disk: Disk) -> None:
    found = [entry.message for entry in disk.read(SESSION, wanted=MessageRange(history="full"))]
    shapes = [
        message.tool_uses[0].name
        if isinstance(message, AssistantMessage) and message.tool_uses
        else "result"
        if isinstance(message, UserMessage) and not message.text
        else message.text
        if isinstance(message, AssistantMessage | UserMessage)
        else type(message).__name__
        for message in found
    ]
    assert shapes[:15] == [
        "My name is Ada.",
        "Hello Ada.",
        "Run both.",
        *["Bash", "Bash", "Read", "result", "result", "result"],
        "Both are done.",
        "Ask the moon.",
        *["Agent", "result"],
        "The moon is round.",
        "CompactBoundaryMessage",
    ]
    edge = found[14]
    assert isinstance(edge, CompactBoundaryMessage)
    assert edge.compact_metadata.get("pre_tokens") == 15


def test_its_subagent(disk: Disk) -> None:
    assert disk.agents(SESSION) == [AGENT]
    assert [entry.text for entry in disk.read(SESSION, wanted=MessageRange(agent=AGENT))] == [
        "Look at the moon.",
        "It is round.",
    ]
    told = disk.load(SESSION).parts[f"subagents/agent-{AGENT}"][0]
    assert (told["type"], told["agentType"]) == ("agent_metadata", "general-purpose")


def test_where_something_was_said(disk: Disk) -> None:
    assert [hit.agent_id for hit in disk.search(Search("look at the moon"))] == [None, AGENT]
