"""How settings and the sandbox reach the agent: the sandbox has no flag and travels in the settings.

Reads the one settings file that has to be merged or checked, and writes none.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from outrider.errors import OptionsError
from outrider.launch._places import Given
from outrider.launch._spelling import begins_like_json, is_inline, json_of, runs_here

if TYPE_CHECKING:
    from outrider.command import Runner
    from outrider.options import Sandbox
    from outrider.wire import JsonObject


def carried_settings(
    settings: str | JsonObject | None,
    sandbox: Sandbox | None,
    strict: bool,
    cwd: str | None,
    runner: Runner | None,
) -> bytes | Given | None:
    """What the agent is given as its settings: the content of a file to make, or the path of one.

    Raises `OptionsError` if they cannot be used; if they are not `strict`, warns and leaves them out, or
    leaves them to the agent. The agent itself passes over a file with mistakes in it without a word.
    """
    where = Path(cwd or "")
    is_here = runs_here(runner)
    if sandbox is not None:
        return json_of(_merged(settings, sandbox, strict, where, is_here=is_here))
    if settings is None:
        return None
    if not isinstance(settings, str):
        return json_of(settings)
    if is_inline(settings):
        # As an argument, text that is not JSON would end the agent; in a file, it would be passed over.
        _parsed(settings.encode(), "the JSON text")
        return settings.encode()
    if is_here or begins_like_json(settings):
        try:
            _read(where, settings)
        except OptionsError as error:
            # Passed on as a path, it would be on the command line.
            if strict or begins_like_json(settings):
                raise
            _warn(f"{error.message}. The agent may pass over it without a word.")
    return Given(settings)


def _merged(
    settings: str | JsonObject | None, sandbox: Sandbox, strict: bool, cwd: Path, *, is_here: bool
) -> JsonObject:
    try:
        others = _loaded(settings, cwd, is_here=is_here)
    except OptionsError as error:
        if strict:
            raise
        _warn(f"{error.message}. They are left out: `sandbox` is the only setting that the agent gets.")
        others = {}
    return {**others, "sandbox": _spelled(sandbox)}


def _loaded(settings: str | JsonObject | None, cwd: Path, *, is_here: bool) -> JsonObject:
    if settings is None:
        return {}
    if not isinstance(settings, str):
        return settings
    if is_inline(settings):
        return _parsed(settings.encode(), "the JSON text")
    if not is_here and not begins_like_json(settings):
        raise _unusable(f"the file {settings!r} is where the agent runs, and `sandbox` cannot be added to it")
    return _read(cwd, settings)


def _read(cwd: Path, name: str) -> JsonObject:
    try:
        content = (cwd / name).read_bytes()
    except (OSError, ValueError) as error:
        is_missing = isinstance(error, FileNotFoundError)
        why = "does not exist" if is_missing else f"cannot be read ({error})"
        if begins_like_json(name):
            why = "is no JSON object, although it begins like one, and a file of this name does not exist"
            raise _unusable(f"the text {why}") from None
        raise _unusable(f"the file {name!r} {why}") from error
    # Editors on Windows put a byte order mark first.
    return _parsed(content.removeprefix(b"\xef\xbb\xbf"), f"the file {name!r}")


def _parsed(content: bytes, source: str) -> JsonObject:
    try:
        value: object = msgspec.json.decode(content)
    except (ValueError, RecursionError) as error:
        raise _unusable(f"{source} is not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise _unusable(f"{source} is valid JSON, but not an object")
    return cast("JsonObject", value)


def _unusable(why: str) -> OptionsError:
    return OptionsError(f"`settings` cannot be used: {why}", hint="Correct them, or give them as a mapping.")


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=3)


def _spelled(sandbox: Sandbox) -> JsonObject:
    fields = sandbox.to_wire()
    if fields.get("enabled") is True:
        # Else the agent runs commands unconfined where it finds no means to confine them.
        fields.setdefault("failIfUnavailable", True)
    return fields
