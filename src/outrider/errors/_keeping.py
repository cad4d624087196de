"""How errors are kept: the words of a result that failed, and what makes an error survive pickling.

Knows no particular error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.errors import OutriderError


def reason_of(result: object) -> str:
    """Why a turn failed, in the best words that its result has; empty if it has none."""
    result = getattr(result, "message", result)  # What a turn came to has the agent's own as `message`.
    errors = getattr(result, "errors", None) or ()
    words = [str(error).strip() for error in ((errors,) if isinstance(errors, str) else errors)]
    said = "; ".join(filter(None, words)) or str(getattr(result, "result", None) or "").strip()
    subtype, status = getattr(result, "subtype", None), getattr(result, "api_error_status", None)
    fallback = str(subtype) if subtype and subtype != "success" else f"HTTP status {status}" if status else ""
    return said or fallback


def pickled(cause: BaseException | None) -> bytes:
    """A cause in a form that cannot spoil the pickle that it goes into; empty if it has none."""
    import pickle

    try:
        return b"" if cause is None else pickle.dumps(cause)
    except Exception:  # noqa: BLE001
        return b""


def restored(kind: type[OutriderError], args: tuple[object, ...], cause: bytes) -> OutriderError:
    """The error without `__init__`, which wants facts that `args` does not have; its attributes follow."""
    import contextlib
    import pickle

    error = kind.__new__(kind)
    error.args = args
    # There may be none, and many can be pickled but not unpickled; that is no reason to lose this one.
    with contextlib.suppress(Exception):
        error.__cause__ = pickle.loads(cause)
    return error
