"""Decides what in options is a secret, which neither a journal keeps nor a cluster is given.

Does not hide it in what is shown: `outrider.redaction` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

from outrider.options._part import plain
from outrider.redaction import is_secret_key, mask, mask_json

__all__ = ["WITH_SECRETS", "filled", "is_secret", "is_secret_variable", "kept_options"]

WITH_SECRETS: Final = (
    "executable_args",
    "extra_args",
    "settings",
    "managed_settings",
    "mcp_servers",
    "agents",
    "plugins",
    "sandbox",
)
"""Options that hold what is used, and not only read."""
_ALL_SECRET: Final = ("env", "headers")
"""What MCP servers are given: any of it may be a secret, whatever it is called."""
_REFERENCE: Final = re.compile(r"\$\{\w+\}")
"""What the agent puts a variable of its own environment in the place of."""


def is_secret_variable(name: str, value: str) -> bool:
    """Whether a variable looks like a secret, by its name or by its value."""
    return bool(value) and (is_secret_key(name) or mask(value) != value)


def is_secret(given: object) -> bool:
    """Whether something in a value of JSON types looks like a secret. `${NAME}` is none."""
    value = _without_references(given)
    # A path says nothing, and JSON text what it says.
    return bool(value) and (mask(value) if isinstance(value, str) else mask_json(value)) != value


def kept_options(options: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """Options of JSON types without their secrets, and where those were: `env.NAME`, or the name of an
    option."""
    kept, places = dict(options), list[str]()
    variables = options.get("env")
    if isinstance(variables, Mapping):
        env = cast("Mapping[str, str]", variables)
        secret = [name for name, value in env.items() if is_secret_variable(name, str(value))]
        places += (f"env.{name}" for name in secret)
        kept["env"] = {name: value for name, value in env.items() if name not in secret}
    for name in (*WITH_SECRETS, "session_store"):
        value = plain(options.get(name))
        if is_secret(value) or (name == "mcp_servers" and _gives_anything(value)):
            places.append(name)
            del kept[name]
    return kept, places


def filled(
    options: Mapping[str, object], places: Sequence[str], env: Mapping[str, str]
) -> tuple[dict[str, object], list[str]]:
    """Options with what was left out of them, as far as `env` has it, and the places for which it has
    nothing."""
    variables = dict(cast("Mapping[str, str]", options.get("env", {})))
    missing: list[str] = []
    for place in places:
        name = place.removeprefix("env.")
        if name != place and name in env:
            variables[name] = env[name]
        else:
            missing.append(place)
    return {**options, **({"env": variables} if variables else {})}, missing


def _gives_anything(servers: object) -> bool:
    """Whether an MCP server is given a variable or a header that is not only referred to."""
    if not isinstance(servers, Mapping):
        return False
    for server in cast("Mapping[str, object]", servers).values():
        for name in _ALL_SECRET if isinstance(server, Mapping) else ():
            given = cast("Mapping[str, object]", server).get(name)
            if isinstance(given, Mapping) and any(
                not _REFERENCE.search(str(value)) for value in cast("Mapping[str, object]", given).values()
            ):
                return True
    return False


def _without_references(value: object) -> object:
    if isinstance(value, str):
        rest, count = _REFERENCE.subn("", value)
        # `Bearer ${KEY}`: what is left tells how the key is used.
        return "" if count and mask(rest) == rest else rest
    if isinstance(value, dict):
        items = cast("dict[object, object]", value)
        return {key: _without_references(item) for key, item in items.items()}
    if isinstance(value, list):
        return [_without_references(item) for item in cast("list[object]", value)]
    return value
