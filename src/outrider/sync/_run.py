"""`run` and `stream`, without `await`.

Written by `scripts/sync_surface.py`: run that instead of changing it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, Unpack, cast

from outrider.options import OptionFields, Options
from outrider.session import _run
from outrider.session._prompts import Prompt, Prompts
from outrider.session._result import Output, Output_co, OutputType, Result
from outrider.session._streams.turn_state import Until
from outrider.sync._portal import Wrapper, portal, wrap
from outrider.sync._surface import Turn


class TurnContext(Wrapper, Generic[Output_co]):
    """A turn in a session of its own, open as long as its block."""

    @property
    def _async(self) -> _run.TurnContext[Output_co]:
        return cast(_run.TurnContext[Output_co], self._wrapped)

    def __enter__(self) -> Turn[Output_co]:
        return cast("Turn[Output_co]", wrap(Turn, self._enter(self._async), self._portal))

    def __exit__(self, *_: object) -> None:
        self._wait(self._async.__aexit__, *_)


def run(
    prompt: Prompt | Prompts,
    options: Options | None = None,
    *,
    output: OutputType[Output] = None,
    until: Until = "idle",
    check: bool = True,
    **fields: Unpack[OptionFields],
) -> Result[Output]:
    """Run one prompt, or an iterable of them, and give what it came to. The agent is gone when this returns.

        result = outrider.sync.run("How many TODOs are in src?", cwd="project")

    `output`: the form that the answer must have, a type or a JSON Schema; `Result.output` is then of it.

    It waits for subagents that work in the background, too; `until="result"`: only for the first answer.
    Raises what `Session.connect` and `Turn.result` raise; with `check=False`, a turn that failed is given
    back as a result with its `error`.
    """
    loop = portal()
    return loop.call(
        cast("Callable[..., Awaitable[Result[Output]]]", _run.run),
        prompt,
        options,
        output=output,
        until=until,
        check=check,
        **fields,
    )


def stream(
    prompt: Prompt | Prompts,
    options: Options | None = None,
    *,
    output: OutputType[Output] = None,
    until: Until = "idle",
    **fields: Unpack[OptionFields],
) -> TurnContext[Output]:
    """Run one prompt and see what comes, as it comes.

        with outrider.sync.stream("Explain the build") as turn:
            for message in turn: ...

    Leaving the block ends the agent, whether the turn is over or not. Raises what `Session.connect` raises.
    """
    loop = portal()
    return cast(
        "TurnContext[Output]",
        wrap(
            TurnContext,
            loop.read(
                cast("Callable[..., object]", _run.stream),
                prompt,
                options,
                output=output,
                until=until,
                **fields,
            ),
            loop,
        ),
    )
