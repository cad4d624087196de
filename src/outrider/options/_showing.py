"""How options and their parts are shown: short, and with every secret hidden.

Does not decide what a secret is: `outrider.redaction` does; here is only which fields hold nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from outrider.redaction import MASK, is_secret_key, mask_argv, mask_json, preview

_LENGTH = 120
_ARGUMENTS = frozenset(("args", "executable_args"))
_ENVIRONMENTS = frozenset(("env", "extra_args"))
_JSON_TEXTS = frozenset(("settings", "mcp_servers"))
# Inside of settings and servers these are mappings of anything, under names that people choose.
_SECRET_MAPPINGS = frozenset(("env", "headers"))


def shown_fields(fields: Mapping[str, object], secret: frozenset[str] = frozenset()) -> str:
    """Fields as the arguments of a call. `secret` are mappings of which only the keys may be seen."""
    return ", ".join(f"{name}={_shown(name, value, secret)}" for name, value in fields.items())


def _shown(name: str, value: object, secret: frozenset[str]) -> str:
    if name in secret and isinstance(value, Mapping):
        return _cut(repr(dict.fromkeys(cast(Mapping[str, object], value), MASK)))
    if name in _ENVIRONMENTS and isinstance(value, Mapping):
        return _cut(repr(_masked_variables(cast(Mapping[str, object], value))))
    if name in _ARGUMENTS and isinstance(value, Sequence):
        return _cut(repr(tuple(mask_argv([str(item) for item in cast(Sequence[object], value)]))))
    if name in _JSON_TEXTS and isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        return f"<JSON of {len(value)} characters>"
    return _value(value)


def _masked_variables(variables: Mapping[str, object]) -> dict[str, object]:
    return {
        name: MASK if value and is_secret_key(name) else mask_json(value) for name, value in variables.items()
    }


def _value(value: object) -> str:
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, str):
        return repr(preview(value, _LENGTH))
    if isinstance(value, Mapping):
        return _mapping(cast(Mapping[object, object], value))
    if isinstance(value, (tuple, list)):
        items = [_value(item) for item in cast(Sequence[object], value)]
        return f"[{', '.join(items)}]"
    if type(value).__module__.startswith("outrider."):
        return repr(value)
    # The `repr` of a store or a transport may well tell a password.
    return f"<{getattr(value, '__qualname__', type(value).__qualname__)}>"


def _mapping(value: Mapping[object, object]) -> str:
    if all(_is_json(item) for item in value.values()):
        return _cut(repr(mask_json(_without_secret_mappings(value))))
    return (
        "{" + ", ".join(f"{preview(repr(key), _LENGTH)}: {_value(item)}" for key, item in value.items()) + "}"
    )


def _without_secret_mappings(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_without_secret_mappings(item) for item in cast(Sequence[object], value)]
    if not isinstance(value, Mapping):
        return value
    fields = cast(Mapping[object, object], value)
    shown = {key: _without_secret_mappings(item) for key, item in fields.items()}
    for key in _SECRET_MAPPINGS & shown.keys():
        if isinstance(hidden := shown[key], dict):
            shown[key] = dict.fromkeys(cast(dict[object, object], hidden), MASK)
    return shown


def _is_json(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_json, cast(Mapping[str, object], value).values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_json, cast(Sequence[object], value)))
    return value is None or isinstance(value, (str, bool, int, float))


def _cut(text: str) -> str:
    return text if len(text) <= 4 * _LENGTH else text[: 4 * _LENGTH] + "…"
