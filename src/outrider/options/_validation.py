"""The rules for options that depend on each other: what excludes what, and what needs what.

Single values are read before, by the table in `_normal`; what depends on the machine is in `_place`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from outrider.errors import OptionsError
from outrider.options._parts import FilePrompt, PresetPrompt
from outrider.options._readers import is_list, is_mapping, is_path
from outrider.options._rules import allows_whole_tool

if TYPE_CHECKING:
    from outrider.options._options import Options


class PermissionShadowedWarning(UserWarning):
    """The `permission` callback will not be asked about some of what the agent does."""


class Rule(msgspec.Struct, frozen=True):
    """Options that cannot work together."""

    broken: Callable[[Options], object]
    says: str
    hint: str


def _goes_on(o: Options) -> bool:
    return o.resume is not None or o.continue_conversation


def _answers_person(o: Options) -> bool:
    return o.on_question is not None or o.on_plan is not None


def _is_fresh(o: Options) -> bool:
    """Whether the program's configuration folder is new, so that it has no sessions."""
    return o.isolation.is_hermetic and o.isolation.config_dir is None


def _same_model_twice(o: Options) -> bool:
    models = (o.model, *(o.fallback_model or ()))
    return len(set(models)) < len(models)


RULES: Final[tuple[Rule, ...]] = (
    # Permissions.
    Rule(
        lambda o: o.permission is not None and o.permission_prompt_tool_name is not None,
        "`permission` and `permission_prompt_tool_name` cannot both decide",
        "Leave one of them out.",
    ),
    Rule(
        lambda o: o.permission is not None and o.permission_prompts == "none",
        '`permission` is never asked with `permission_prompts="none"`',
        "Leave one of them out.",
    ),
    Rule(
        lambda o: _answers_person(o) and o.permission_prompt_tool_name is not None,
        "`on_question` and `on_plan` are never asked with `permission_prompt_tool_name`",
        "Give `permission` in its place, or leave them out.",
    ),
    Rule(
        lambda o: _answers_person(o) and o.permission_prompts == "none",
        '`on_question` and `on_plan` are never asked with `permission_prompts="none"`',
        "Leave it or them out.",
    ),
    Rule(
        lambda o: o.permission_prompt_tool_name is not None and o.permission_prompts == "none",
        '`permission_prompt_tool_name` is never asked with `permission_prompts="none"`',
        "Leave one of them out.",
    ),
    Rule(
        lambda o: o.supported_dialog_kinds and o.on_user_dialog is None,
        "`supported_dialog_kinds` needs `on_user_dialog`, which answers them",
        "Give a function as `on_user_dialog`, or leave the kinds out.",
    ),
    # The program and its model.
    Rule(
        lambda o: o.executable_args and o.executable is None,
        "`executable_args` needs `executable`, which they are for",
        "Arguments for the program itself go into `extra_args`.",
    ),
    Rule(
        _same_model_twice,
        "`fallback_model` names `model`, or one model twice",
        "Name models that differ from `model` and from each other.",
    ),
    # Prompts.
    Rule(
        lambda o: (
            o.append_system_prompt is not None
            and isinstance(o.system_prompt, PresetPrompt)
            and o.system_prompt.append is not None
        ),
        "`append_system_prompt` and `PresetPrompt.append` say the same",
        "Give one of them, with both texts.",
    ),
    Rule(
        lambda o: o.append_system_prompt is not None and isinstance(o.system_prompt, FilePrompt),
        "`append_system_prompt` cannot be added to a `FilePrompt`, which the agent reads itself",
        "Put the text into the file, or read the file and give its text as `system_prompt`.",
    ),
    # Sessions.
    Rule(
        lambda o: o.continue_conversation and o.resume is not None,
        "`continue_conversation` and `resume` name two sessions to go on with",
        "Leave one of them out.",
    ),
    Rule(
        lambda o: o.fork_session and not _goes_on(o),
        "`fork_session` needs a session to copy",
        "Set `resume` or `continue_conversation`, or leave it out.",
    ),
    Rule(
        lambda o: o.resume_session_at is not None and o.resume is None,
        "`resume_session_at` needs `resume`",
        "Set `resume` to the session that the message is in.",
    ),
    Rule(
        lambda o: o.resume_drops_turn is not None and (o.resume is None or o.resume_session_at is None),
        "`resume_drops_turn` needs `resume` and `resume_session_at`",
        "Set `resume_session_at` to the last message that is to stay.",
    ),
    Rule(
        lambda o: o.session_id is not None and _goes_on(o) and not o.fork_session,
        "`session_id` is for a new session, and `resume` or `continue_conversation` goes on with an old one",
        "Leave it out, or set `fork_session`.",
    ),
    Rule(
        lambda o: o.session_store is not None and not o.persist_session,
        "`session_store` needs `persist_session`: it gets what is written to disk",
        "Leave `persist_session` as it is.",
    ),
    Rule(
        lambda o: o.session_store is not None and o.enable_file_checkpointing,
        "`session_store` cannot keep the copies of files that `enable_file_checkpointing` makes",
        "Leave one of them out.",
    ),
    Rule(
        lambda o: (
            o.session_store is not None
            and not is_path(o.session_store)
            and o.continue_conversation
            and not callable(getattr(o.session_store, "list_sessions", None))
        ),
        "`continue_conversation` needs a `session_store` with `list_sessions`, to find the latest session",
        "Add that method, or name the session as `resume`.",
    ),
    Rule(
        lambda o: (
            o.session_store is not None
            and _goes_on(o)
            and o.transport is None
            and o.runner is not None
            and not o.runner.is_local
            and not _is_fresh(o)
        ),
        "a session of a `session_store` cannot be put onto the machine that the `runner` leads to",
        'Use `isolation="hermetic"`, for which it travels with the command.',
    ),
    # Isolation.
    Rule(
        lambda o: _is_fresh(o) and _goes_on(o) and o.session_store is None,
        "a hermetic run has no sessions to go on with",
        "Give it a folder that lasts, `Isolation.hermetic(config_dir)`, or a `session_store`.",
    ),
    Rule(
        lambda o: o.isolation.is_hermetic and o.setting_sources != (),
        "a hermetic run reads no settings of the machine, and `setting_sources` names some",
        "Leave `setting_sources` out, and give what is needed as `settings`.",
    ),
    Rule(
        lambda o: (
            "CLAUDE_CONFIG_DIR" in o.env and (o.isolation.is_hermetic or o.isolation.config_dir is not None)
        ),
        "`env` sets CLAUDE_CONFIG_DIR, and `isolation` decides on that folder",
        "Give the folder as `Isolation(config_dir=…)` or `Isolation.hermetic(…)` alone.",
    ),
)


def check(options: Options) -> None:
    """Raise `OptionsError` for the first rule that is broken."""
    for rule in RULES:
        if rule.broken(options):
            raise OptionsError(rule.says, hint=rule.hint)


def warn_of_shadowed_permission(options: Options) -> None:
    """Warn if there is a callback, and something that it will not be asked about. One that `warns_itself`, in
    the words of another API, is left to do so."""
    given = [name for name in ("permission", "on_question", "on_plan") if getattr(options, name) is not None]
    if not given or getattr(options.permission, "warns_itself", False):
        return
    if _mode(options) == "dontAsk":
        names = " and ".join(f"`{name}`" for name in given)
        verb = "is" if len(given) == 1 else "are"
        why = 'the mode "dontAsk" denies what is not allowed already'
        _warn(f"{names} {verb} not asked about anything: {why}.")
    elif options.permission is not None and (shadows := _shadows(options)):
        _warn(f"`permission` is not asked about {' and '.join(shadows)}. Leave out what it should decide.")


def _warn(text: str) -> None:
    warnings.warn(text, PermissionShadowedWarning, stacklevel=level_of_caller())


def _shadows(options: Options) -> list[str]:
    """What the agent does without asking, and why. What it never asks about is not here: to read files in the
    working folder, and commands that only read."""
    match _mode(options):
        case "bypassPermissions":
            return ['anything but questions and plans: the mode "bypassPermissions" allows all else']
        case "acceptEdits":
            found = ['changes to files in the working folder, which the mode "acceptEdits" allows']
        case "auto":
            found = ['what the classifier of the mode "auto" decides']
        case _:
            found = []
    sources = {
        "allowed_tools": options.allowed_tools,
        "settings": _allow_rules(options.settings),
        "managed_settings": _allow_rules(options.managed_settings),
    }
    for name, rules in sources.items():
        if whole := [rule for rule in rules if allows_whole_tool(rule)]:
            found.append(f"{', '.join(whole)}, which `{name}` allows whatever it is used for")
    if options.skills == "all":
        found.append('skills, which `skills="all"` allows')
    return found


def _mode(options: Options) -> str | None:
    """The mode that the session starts in, as far as the options tell."""
    settings = (options.managed_settings, options.settings)
    modes = (options.permission_mode, *(_permissions(each).get("defaultMode") for each in settings))
    return next((mode for mode in modes if isinstance(mode, str)), None)


def _allow_rules(settings: object) -> list[str]:
    rules = _permissions(settings).get("allow")
    return [rule for rule in rules if isinstance(rule, str)] if is_list(rules) else []


def _permissions(settings: object) -> Mapping[object, object]:
    """What settings say about permissions; those in a file are not looked at."""
    found = settings.get("permissions") if is_mapping(settings) else None
    return found if is_mapping(found) else {}


def level_of_caller() -> int:
    """How far up the first frame is that is not Outrider's, as `warnings.warn` in the caller counts it."""
    level = 1
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "outrider":
        frame = frame.f_back
        level += 1
    return level
