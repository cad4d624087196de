"""Opens a session as the reference SDK does: what goes on with nothing begins anew, and a hook that must
block is only trusted to a program that says it can.

Does not decide what is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.compat._callbacks import has_to_block
from outrider.compat._errors import CLIConnectionError
from outrider.compat._raising import translating
from outrider.compat._translating import translated_options
from outrider.errors import SessionNotFound
from outrider.launch import make_environment
from outrider.session import Session
from outrider.transcripts import Sessions, config_folder

if TYPE_CHECKING:
    from outrider import transports
    from outrider.compat._transport import Transport
    from outrider.compat.types import ClaudeAgentOptions
    from outrider.options import Options


async def opened(
    given: ClaudeAgentOptions | None, transport: Transport | transports.Transport | None
) -> Session:
    """A session that is connected.

    Raises `CLINotFoundError`, `CLIConnectionError`, `ProcessError`, `ValueError`, `TypeError`.
    """
    options = translated_options(given, transport)
    with translating():
        try:
            session = await _connected(options)
        except SessionNotFound:
            if options.session_store is None:
                raise
            session = await _connected(await _without_what_the_store_lacks(options))
    if given is not None and has_to_block(given.hooks):
        await _ensure_blocking(session)
    return session


async def _connected(options: Options) -> Session:
    session = Session(options)
    await session.connect()
    return session


async def _without_what_the_store_lacks(options: Options) -> Options:
    """Options for a store that has nothing to go on with: the program would look on disk, or begin anew.

    Raises `SessionNotFound` if it would find nothing."""
    if options.resume is None:
        return options.replace(continue_conversation=False, fork_session=False)
    here = Sessions(config=config_folder(make_environment(options)))
    await here.copy(options.resume, Sessions(options.session_store))
    return options


async def _ensure_blocking(session: Session) -> None:
    told = session.info.initialized
    if told is not None and told.hook_on_failure_supported and told.hooks_applied is not False:
        return
    await session.close()
    raise CLIConnectionError(
        'A hook has on_failure="block", and the program does not say that it blocks when that fails. '
        "Update it with `claude update`, or leave on_failure out."
    )
