"""Decides what of options goes to another machine: values do, secrets are refused, functions stay.

In the place of a function goes an object that asks for it: `outrider.fleet._ray_line` carries the question,
`_ray_serving` answers it. Does not start anything.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from outrider.errors import OptionsError
from outrider.fleet._ray_line import AskedFunction, AskedHook, AskedServer
from outrider.fleet._secrets import WITH_SECRETS, is_secret, is_secret_variable
from outrider.handlers import Handlers, Policy
from outrider.handlers._hooks import as_hook, sent_matcher
from outrider.options import OptionFields, SdkServer
from outrider.options._part import differing, plain
from outrider.redaction import mask

if TYPE_CHECKING:
    from outrider.options import McpServer, Options
    from outrider.options._tool_names import ToolNames

__all__ = ["refuse_secrets_in", "refuse_secrets_of", "travelling"]

_CALLBACKS: Final = ("permission", "on_question", "on_plan", "on_elicitation", "on_user_dialog")
"""Options that are functions which the agent's questions go to."""

_STAYING: Final = {
    "transport": "The agent is started by its worker: give `cli_path`, or have it on the PATH there.",
    "stderr": "Leave it out: the last lines are kept for errors. Or write a `debug_file` on the worker.",
}
"""Objects of this process that no worker can use, and what to do without them."""

_ELSEWHERE: Final = (
    "Set it in the environment of the workers, where the agent finds it, and leave it out here: what is in a"
    " task is kept and shown by the cluster."
)


def travelling(options: Options) -> Options:
    """The options as they are sent: with nothing in them that is of this process alone.

    Raises `OptionsError` for what can neither be sent nor served, and for secrets.
    """
    _refuse_secrets(options)
    given = differing(options)
    for name, hint in _STAYING.items():
        if name in given:
            raise OptionsError(f"`{name}` cannot be used with the engine 'ray'", hint=hint)
    store = options.session_store
    if store is not None and not isinstance(store, str):
        raise OptionsError(
            "`session_store` is an object of this process, and workers are others",
            hint="Give its URL, for example 'postgresql://user@host/db'.",
        )
    # Of tools that stay here the worker knows no short names: all of them are resolved before they go.
    handlers = Handlers(options.replace(hooks={}), lambda _: None)
    names = handlers.tool_names()
    changes = handlers.resolved_options()
    changes |= {name: _asked(name, given[name], names) for name in _CALLBACKS if name in given}
    if options.hooks:
        changes["hooks"] = _asked_hooks(options.hooks, names)
    changes |= _asked_servers(options, handlers)
    sent = options.replace(**cast("OptionFields", changes)) if changes else options
    _refuse_what_cannot_be_sent(sent)
    return sent


def _asked(name: str, function: object, names: ToolNames) -> object:
    if isinstance(function, Policy):
        # Rules look at paths, which are those of the worker.
        inner = None if function.otherwise is None else AskedFunction(name)
        return msgspec.structs.replace(function.with_full_names(names), otherwise=inner)
    return AskedFunction(name)


def _asked_hooks(hooks: Mapping[str, tuple[object, ...]], names: ToolNames) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for event, given in hooks.items():
        made = [as_hook(event, each) for each in given]
        found[event] = [
            AskedHook.of(hook, place, sent_matcher(hook, names)) for place, hook in enumerate(made)
        ]
    return found


def _asked_servers(options: Options, handlers: Handlers) -> dict[str, object]:
    """Tools and servers of this process, as servers that ask it."""
    own = handlers.servers.given
    if not own:
        return {}
    servers: dict[str, McpServer] = {}
    if not isinstance(options.mcp_servers, str):
        servers.update(options.mcp_servers)
    for name, given in own.items():
        servers[name] = SdkServer(name=name, instance=AskedServer(name), always_load=given.always_load)
    tools = options.tools
    if not isinstance(tools, str) and tools is not None:
        named = tuple(tool for tool in tools if isinstance(tool, str))
        # Only tools of one's own: all built-in ones.
        tools = named if named or not tools else None
    resolved = handlers.resolved_options().get("allowed_tools", options.allowed_tools)
    allowed = (*cast("tuple[str, ...]", resolved), *handlers.allowed_by_nature)
    return {"mcp_servers": servers, "tools": tools, "allowed_tools": allowed}


def _refuse_what_cannot_be_sent(options: Options) -> None:
    cloudpickle = cast("Any", import_module("ray.cloudpickle"))
    for name, value in differing(options).items():
        try:
            cloudpickle.dumps(value)
        except (TypeError, AttributeError, ValueError, pickle.PicklingError) as error:
            raise OptionsError(
                f"`{name}` cannot be sent to workers: {error}",
                hint="Give a value, or an object of a class that can be pickled.",
            ) from error


# Secrets.


def _refuse_secrets(options: Options) -> None:
    """Raises `OptionsError` if something in the options looks like a secret."""
    refuse_secrets_in("`env`", options.env)
    for name in WITH_SECRETS:
        refuse_secrets_of(f"`{name}`", plain(getattr(options, name)))
    store = options.session_store
    if isinstance(store, str) and mask(store) != store:
        raise OptionsError(
            "`session_store` has a password in its URL, which would go with the task",
            hint="Leave it out, and set it in the environment of the workers: PGPASSWORD, for example.",
        )


def refuse_secrets_of(place: str, given: object) -> None:
    """Raises `OptionsError` if something in a value of JSON types looks like a secret."""
    if is_secret(given):
        raise OptionsError(
            f"{place} has something in it that looks like a secret, and would go with the task",
            hint=f"Write ${{NAME}} in its place, if the agent reads it there. {_ELSEWHERE}",
        )


def refuse_secrets_in(place: str, variables: Mapping[str, str]) -> None:
    """Raises `OptionsError` if one of the variables looks like a secret, by its name or by its value."""
    for name, value in variables.items():
        if is_secret_variable(name, value):
            raise OptionsError(
                f"{place} has {name!r}, which looks like a secret, and would go with the task",
                hint=_ELSEWHERE,
            )
