"""What it means that the user's code raised something: that it failed, or that the whole program is to end.

Does not act on it.
"""

from __future__ import annotations

from typing import cast

import anyio


def is_failure(error: BaseException) -> bool:
    """Whether it concerns nobody but the code that raised it: an error, a cancellation, or a group of these.

    A cancellation may still be meant for the task: a checkpoint raises it again then.
    """
    kinds = (Exception, GeneratorExit, anyio.get_cancelled_exc_class())
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).split(kinds)[1] is None
    return isinstance(error, kinds)


def unwrapped(error: BaseException) -> BaseException:
    """The one exception in a group of one, as task groups make them."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return group if len(group.exceptions) > 1 else unwrapped(next(iter(group.exceptions)))


def words_of(error: BaseException) -> str:
    """What it says, or else what it is."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001 - an exception of the user's, which may be anything
        return type(error).__name__
