"""`resume_or_start`: a prompt under an id of the caller's own, for programs with a queue of their own.

A message that is delivered again continues the session that the first delivery has begun.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from outrider.errors import OptionsError, SessionExists, SessionNotFound
from outrider.fleet._engine import PICK_UP
from outrider.fleet._fields import ResilientFields, split_keywords
from outrider.fleet._resilient.retry import Restart
from outrider.fleet._resilient.session import ResilientSession
from outrider.fleet._resilient.turn_runner import resumed
from outrider.options import Options
from outrider.options._validators import text
from outrider.session._result import Output

if TYPE_CHECKING:
    from typing import Unpack

    from outrider.session import Prompt, Result
    from outrider.session._result import OutputType


_NAMESPACE: Final = uuid.UUID("6f0a3c1e-2d0b-5a55-9a0e-0f5c7d3b9e41")


def session_id_for(id: str) -> str:
    """The id of the session that `resume_or_start` uses for this one: the same if it is a UUID, else one that
    is made from it."""
    given = text("`id`", id)
    with suppress(ValueError):
        return str(uuid.UUID(given))
    return str(uuid.uuid5(_NAMESPACE, given))


async def resume_or_start(
    id: str,
    prompt: Prompt,
    options: Options | None = None,
    *,
    output: OutputType[Output] = None,
    continue_with: str = PICK_UP,
    check: bool = True,
    **fields: Unpack[ResilientFields],
) -> Result[Output]:
    """Run a prompt under an id of your own, such as that of a message in a queue, and return its result.

        result = await fleet.resume_or_start(message.id, "Review it", session_store="postgresql://…")

    The first call with an id starts a session. A later one finds it, wherever it runs if there is a
    `session_store`, and sends `continue_with`: the agent goes on where it was cut off, or gives its answer
    again. The other keywords are those of a `ResilientSession`.

    If the last holder was lost, waits for its lease to run out, as often as `restart` says. Raises
    `SessionBusy` if another process is at work on it; otherwise what `ResilientSession.ask` raises.
    """
    session_id = session_id_for(id)
    own, single = split_keywords(fields, ResilientFields)
    base = (options or Options()).replace(**single)
    if not base.persist_session or base.resume is not None or base.continue_conversation:
        raise OptionsError(
            "`resume_or_start` chooses the session, and has to find it again",
            hint="Leave `resume`, `continue_conversation` and `persist_session` out.",
        )
    if own.get("restart", True) is not None:
        restart = own.get("restart") or Restart()
        own["restart"] = Restart(
            max=restart.max,
            backoff=restart.backoff,
            max_backoff=restart.max_backoff,
            resend=restart.resend,
            continue_with=restart.continue_with or continue_with,
        )

    async def ask(given: Options, words: Prompt) -> Result[Output]:
        session: ResilientSession[Any] = ResilientSession(given, output=cast("Any", output), **own)
        try:
            # Not `async with`: `connect` does not wait for a session that a lost writer still holds.
            turn = await session.send(words, until="idle")
            return cast("Result[Output]", await turn.result(check=check))
        finally:
            await session.close()

    try:
        return await ask(resumed(base, session_id), continue_with)
    except SessionNotFound:
        pass
    try:
        return await ask(base.replace(session_id=session_id), prompt)
    except SessionExists:
        # Another delivery of the same message was faster.
        return await ask(resumed(base, session_id), continue_with)
