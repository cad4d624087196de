"""Play a few scenes with several versions of Claude Code, and print what works with each.

Installs the versions from npm into build/, once. `--write` puts the table into docs/versions.md, and
`python scripts/versions.py 2.1.50 …` plays with other versions.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, Unpack

import anyio
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import outrider
from outrider import Session
from outrider.errors import AgentTooOld
from outrider.options import OptionFields, PresetPrompt
from outrider.options._table import ROWS, Destination, Host
from outrider.testing import RealAgent, say, use_tool, when
from outrider.transcripts import MemoryStore
from outrider.wire import AssistantMessage, StreamEvent, ToolUseBlock
from outrider.wire.hooks import PreToolUseInput
from scripts.agent_program import OTHERS, Failed, install, newest

PAGE = Path(__file__).parents[1] / "docs" / "versions.md"
VERSIONS: Final = ("2.0.0", "2.0.77", "2.1.0", "2.1.100", "2.1.220")
"""And the newest."""

SCENE_SECONDS: Final = 120.0

Scene: TypeAlias = Callable[[str], Awaitable[str | None]]
"""Gets a program. Returns what is different with it, if it is, and raises if it does not work."""

SCENES: Final[dict[str, Scene]] = {}

CELL: Final = re.compile(r"yes|from \d+\.\d+\.\d+|waits|no: .+")
"""What stands in the table."""


def scene(title: str) -> Callable[[Scene], Scene]:
    def add(play: Scene) -> Scene:
        SCENES[title] = play
        return play

    return add


def agent(program: str, *script: object) -> RealAgent:
    # Some versions ask the model for things of their own, as if a user had asked.
    steps: Any = script
    return RealAgent(steps, program=program, otherwise=say("As you like."))


def body_of(found: RealAgent, prompt: str) -> dict[str, Any]:
    """The request to the model that has this prompt."""
    return next(request.body for request in found.api.requests if prompt in request.prompt)


def system_of(found: RealAgent, prompt: str) -> str:
    system = body_of(found, prompt).get("system", "")
    return system if isinstance(system, str) else "\n".join(block["text"] for block in system)


async def begun(turn: outrider.Turn[Any]) -> None:
    """Wait until the model has called a tool."""
    async for message in turn:
        if isinstance(message, AssistantMessage) and any(
            isinstance(block, ToolUseBlock) for block in message.content
        ):
            return


# Some versions refuse to sleep.
WAIT = use_tool("Bash", command="tail -f /dev/null")


@scene("turns, partial messages")
async def turns(program: str) -> None:
    with agent(program, when("first", say("one")), when("second", say("two"))) as found:
        async with Session(found.options(include_partial_messages=True)) as session:
            assert session.info.version, "its version is not known"
            turn = await session.send("first")
            assert any([isinstance(message, StreamEvent) async for message in turn])
            assert (await turn.result()).text == "one"
            assert (await session.ask("second")).text == "two"


@scene("`system_prompt`, `append_system_prompt`")
async def prompts(program: str) -> None:
    fields: list[OptionFields]
    fields = [{}, {"system_prompt": "Speak Latin."}, {"append_system_prompt": "Speak Latin."}]
    for each in fields:
        with agent(program, when("hello", say("salve"))) as found:
            await outrider.run("hello", options=found.options(**each))
            system = system_of(found, "hello")
        assert ("Speak Latin." in system) is bool(each), "the text does not reach the model"
        assert (len(system) > 2000) is ("append_system_prompt" in each), "it is not in its place"


@scene("your own `tools`")
async def tools(program: str) -> None:
    @outrider.tool
    def owner(ticket: int) -> str:
        """Who owns a ticket."""
        return f"Ada owns {ticket}"

    with agent(program, when("who", [use_tool(owner, ticket=7), say("Ada.")])) as found:
        assert (await outrider.run("who", options=found.options(tools=[owner]))).text == "Ada."
        assert any("Ada owns 7" in json.dumps(request.body) for request in found.api.requests)


@scene("hooks")
async def hooks(program: str) -> None:
    seen: list[object] = []

    @outrider.hook("PreToolUse", matcher="Bash")
    def refuse(event: PreToolUseInput) -> outrider.Answer:
        seen.append(event.tool_input)
        return outrider.deny("not here")

    with agent(program, when("list", [use_tool("Bash", command="ls"), say("no")])) as found:
        await outrider.run("list", options=found.options(hooks=[refuse]))
        assert seen
        assert any("not here" in json.dumps(request.body) for request in found.api.requests)


@scene("`permission`")
async def permission(program: str) -> None:
    seen: list[str] = []

    def decide(request: outrider.PermissionRequest) -> object:
        seen.append(request.tool_name)
        return outrider.allow()

    with agent(program, when("write", [use_tool("Bash", command="touch x"), say("done")])) as found:
        await outrider.run("write", options=found.options(permission=decide))
        assert seen == ["Bash"]
        assert (found.folder / "x").exists()


@scene("`resume`")
async def resume(program: str) -> None:
    with agent(program, when("first", say("one")), when("second", say("two"))) as found:
        result = await outrider.run("first", options=found.options())
        await outrider.run("second", options=found.options(resume=result.session_id))
        assert "first" in json.dumps(body_of(found, "second"))


@scene("`set_model`, `set_permission_mode`, `mcp_status`")
async def requests(program: str) -> None:
    with agent(program, when("hello", say("salve"))) as found:
        async with Session(found.options()) as session:
            await session.set_model("claude-haiku-4-5")
            await session.set_permission_mode("acceptEdits")
            assert await session.mcp_status() == []
            await session.ask("hello")
            assert body_of(found, "hello")["model"].startswith("claude-haiku-4-5")


@scene("`turn.cancel()`")
async def cancel(program: str) -> None:
    with agent(program, when("wait", WAIT), when("go on", say("gladly"))) as found:
        async with Session(found.options(permission_mode="bypassPermissions")) as session:
            turn = await session.send("wait")
            await begun(turn)
            assert (await turn.cancel()).outcome == "cancelled"
            assert (await session.ask("go on")).text == "gladly"


@scene("`turn.cancel()` behind another turn")
async def withdraw(program: str) -> str | None:
    with agent(program, when("wait", WAIT), when("later", WAIT)) as found:
        async with Session(found.options(permission_mode="bypassPermissions")) as session:
            first = await session.send("wait")
            await begun(first)
            second = await session.send("later")
            withdrawn = anyio.Event()
            receipts: list[outrider.CancelReceipt] = []

            async def take_back() -> None:
                receipts.append(await second.cancel())
                withdrawn.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(take_back)
                # Versions that cannot do it leave the first turn alone until it ends.
                with anyio.move_on_after(3):
                    await withdrawn.wait()
                receipts.append(await first.cancel())
            assert [receipt.outcome for receipt in receipts] == ["cancelled"] * 2, receipts
            was_withdrawn = receipts[0].was_withdrawn or receipts[1].was_withdrawn
            return None if was_withdrawn else "waits"


@dataclass
class Count:
    """What the model is asked for."""

    number: int


@scene("`output`")
async def output(program: str) -> None:
    with agent(program, when("how many", [use_tool("StructuredOutput", number=7), say("7")])) as found:
        assert (await outrider.run("how many", output=Count, options=found.options())).output == Count(7)


@scene("`agents`")
async def agents(program: str) -> None:
    reviewer = outrider.AgentDefinition(description="Reviews with rigour.", prompt="You review.")
    with agent(program, when("hello", say("salve"))) as found:
        # Some versions tell the model of subagents together with their own prompt.
        options = found.options(agents={"reviewer": reviewer}, system_prompt=PresetPrompt())
        await outrider.run("hello", options=options)
        assert "Reviews with rigour." in json.dumps(body_of(found, "hello")), "the model does not know it"


def with_option(called: str, **fields: Unpack[OptionFields]) -> None:
    """Add a scene for an option that a version has or refuses."""

    async def play(program: str) -> None:
        with agent(program, when("hello", say("salve"))) as found:
            assert (await outrider.run("hello", options=found.options(**fields))).text == "salve"

    SCENES[called] = play


with_option("`max_budget_usd`, `tools=[…]`", max_budget_usd=1, tools=["Bash"])
with_option("`effort`", effort="low")
with_option("`thinking`", thinking="adaptive")
with_option(
    "`tool_aliases`, `plan_mode_instructions`", tool_aliases={"Shell": "Bash"}, plan_mode_instructions="Plan."
)


@scene("`session_store`")
async def store(program: str) -> None:
    kept = MemoryStore()
    with agent(program, when("hello", say("salve"))) as found:
        result = await outrider.run("hello", options=found.options(session_store=kept))
        sessions = outrider.Sessions(kept)
        assert [info.id for info in await sessions.list()] == [result.session_id]


# The table.


async def play(title: str, program: str) -> str:
    """What comes of a scene, for the table."""
    try:
        with anyio.fail_after(SCENE_SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return await SCENES[title](program) or "yes"
    except AgentTooOld as error:
        return f"from {error.minimum}"
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs into the table
        text = " ".join(str(error).split())
        return f"no: {type(error).__name__}{f', {text}'[:100] if text else ''}".replace("|", "/")


Rows: TypeAlias = dict[str, list[str]]
"""By the title of a scene: a cell for each version."""


def markdown(versions: Iterable[str], rows: Rows) -> list[str]:
    head = ["with Claude Code", *versions]
    lines = [head, ["---"] * len(head), *([title, *cells] for title, cells in rows.items())]
    return [f"| {' | '.join(line)} |" for line in lines]


def since() -> list[str]:
    """What not all supported versions have: options, and parts of options."""
    ways: dict[str, list[Destination]] = {}
    for name, to in ROWS:
        if not isinstance(to, Host) and not to.until:
            ways.setdefault(name, []).append(to)
    by_version: dict[tuple[int, ...], list[str]] = {}
    for name, destinations in ways.items():
        firsts = [() if to.optional else to.since for to in destinations]
        if first := min(firsts):
            by_version.setdefault(first, []).append(f"`{name}`")
        for to in destinations:
            if not first and to.since and not to.optional:
                by_version.setdefault(to.since, []).append(f"`{to.name}` of `{name}`")
    lines = ["| from | options |", "| --- | --- |"]
    for version, names in sorted(by_version.items()):
        lines.append(f"| {'.'.join(map(str, version))} | {', '.join(names)} |")
    return lines


def between(page: str, name: str, lines: Iterable[str]) -> str:
    """The page with other lines between the marks of this name."""
    mark = f"<!-- {name} -->\n"
    before, _, rest = page.partition(mark)
    _, end, after = rest.partition(f"<!-- end of {name} -->\n")
    assert end, f"{PAGE.name} has no marks for {name}"
    return "".join((before, mark, "\n", *(f"{line}\n" for line in lines), "\n", end, after))


def show(console: Console, versions: Iterable[str], rows: Rows) -> None:
    table = Table("", *versions, title="Claude Code", box=SIMPLE_HEAD, padding=0, pad_edge=False)
    for title, cells in rows.items():
        shown = [
            "[green]✓[/]" if cell == "yes" else f"[{'red' if cell.startswith('no') else 'yellow'}]{cell}[/]"
            for cell in cells
        ]
        table.add_row(title.replace("`", ""), *[cell.replace("from ", "≥") for cell in shown])
    console.print(table)


def main(arguments: list[str]) -> int:
    console = Console()
    named = [argument for argument in arguments if not argument.startswith("-")]
    rows: Rows = {title: [] for title in SCENES}
    try:
        versions = named or [*VERSIONS, newest()]
        programs = {}
        for version in versions:
            with console.status(f"installing Claude Code {version}"):
                programs[version] = install(OTHERS, version)
    except Failed as error:
        console.print(f"Claude Code cannot be installed: {error}", style="red")
        return 1
    for version, program in programs.items():
        for title, cells in rows.items():
            with console.status(f"{version}: {title}"):
                cells.append(anyio.run(play, title, str(program)))
    show(console, versions, rows)
    if "--write" in arguments:
        page = between(PAGE.read_text(encoding="utf-8"), "scenes", markdown(versions, rows))
        PAGE.write_text(between(page, "options", since()), encoding="utf-8")
    return int(any(cell.startswith("no") for cells in rows.values() for cell in cells))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
