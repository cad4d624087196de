"""One prompt in a session of its own: for its answer (`run`), or for what comes on the way (`stream`).

Adds nothing to what sessions and turns do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from outrider.session._result import Output, Output_co
from outrider.session._session import Session

if TYPE_CHECKING:
    from typing import Unpack

    from outrider.options import OptionFields, Options
    from outrider.session._prompts import Prompt, Prompts
    from outrider.session._result import OutputType, Result
    from outrider.session._streams.turn_state import Until
    from outrider.session._turn import Turn


async def run(
    prompt: Prompt | Prompts,
    options: Options | None = None,
    *,
    output: OutputType[Output] = None,
    until: Until = "idle",
    check: bool = True,
    **fields: Unpack[OptionFields],
) -> Result[Output]:
    """Run one prompt, or an iterable of them, and give what it came to. The agent is gone when this returns.

        result = await outrider.run("How many TODOs are in src?", cwd="project")

    `output`: the form that the answer must have, a type or a JSON Schema; `Result.output` is then of it.

    It waits for subagents that work in the background, too; `until="result"`: only for the first answer.
    Raises what `Session.connect` and `Turn.result` raise; with `check=False`, a turn that failed is given
    back as a result with its `error`.
    """
    async with Session(options, output=output, **fields) as session:
        result = await session.ask(prompt, until=until, check=False)
    return result.raise_for_error() if check else result


def stream(
    prompt: Prompt | Prompts,
    options: Options | None = None,
    *,
    output: OutputType[Output] = None,
    until: Until = "idle",
    **fields: Unpack[OptionFields],
) -> TurnContext[Output]:
    """Run one prompt and see what comes, as it comes.

        async with outrider.stream("Explain the build") as turn:
            async for message in turn: ...

    Leaving the block ends the agent, whether the turn is over or not. Raises what `Session.connect` raises.
    """
    return TurnContext(prompt, Session(options, output=output, **fields), until)


class TurnContext(Generic[Output_co]):
    """A turn in a session of its own, open as long as its block."""

    def __init__(self, prompt: Prompt | Prompts, session: Session[Output_co], until: Until) -> None:
        self._prompt = prompt
        self._session = session
        self._until: Until = until

    async def __aenter__(self) -> Turn[Output_co]:
        await self._session.connect()
        try:
            return await self._session.send(self._prompt, until=self._until)
        except BaseException:
            await self._session.close()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
