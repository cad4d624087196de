"""Validates options that depend on each other, on the machine, or on what the command line can carry."""

from __future__ import annotations

import os.path
import re
import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from outrider.errors import FolderNotFound, OptionsError
from outrider.options._table import flag_owners
from outrider.options._validators import is_list, is_mapping, is_path
from outrider.options._values import FilePrompt, PresetPrompt

if TYPE_CHECKING:
    from outrider.options._options import Options


# Rules and names that the command line has to carry.

_WHOLE_TOOL: Final = r"[^()]+(?:\(\**\))?\Z"
_BLANK: Final = re.compile(r"\s")
_CONTROL: Final = "[\x00-\x1f\x7f-\x9f\ufeff]"


def split_rules(joined: str) -> list[str]:
    """A list of rules as the program takes it apart: at commas and blanks outside of parentheses. Parentheses
    do not nest: the first one that closes ends them all."""
    rules: list[str] = []
    rule, inside = "", False
    for character in joined:
        if character in ", " and not inside:
            rules.append(rule.strip())
            rule = ""
            continue
        inside = character == "(" or (inside and character != ")")
        rule += character
    return [found for found in (*rules, rule.strip()) if found]


def is_one_rule(place: str, rule: str) -> None:
    """Raise for a rule that the program would read as several, or as part of the next one."""
    read = split_rules(f"{rule},X")
    if read == [rule, "X"] and not _BLANK.search(rule.partition("(")[0]):
        return
    if len(read) > 2:
        pieces = ", ".join(map(repr, read[:-1]))
        raise OptionsError(
            f"{place} would be read as several rules: {rule!r}",
            hint=f"Give each as its own entry: [{pieces}]. Parentheses inside of parentheses can only be "
            "given in `settings`, under `permissions`.",
        )
    raise OptionsError(
        f"{place} would not be read as it is written: {rule!r}",
        hint="Write a tool's name, or `Tool(what)` with both parentheses, and no blanks around it.",
    )


def is_tool_name(place: str, name: str) -> None:
    """Raise for the name of a tool that the program would read as several."""
    if "," in name or _BLANK.search(name):
        hint = "Give each name as its own entry."
        raise OptionsError(f"{place} is not the name of one tool: {name!r}", hint=hint)


def allows_whole_tool(rule: str) -> bool:
    """Whether a rule allows all uses of a tool: `Read`, `Read()`, `Read(*)`."""
    return re.match(_WHOLE_TOOL, rule) is not None


def is_skill_name(place: str, name: str) -> None:
    """Raise for the name of a skill that cannot stand in a rule `Skill(name)`, or means more than one."""
    if reason := _skill_problem(name):
        raise OptionsError(
            f"{place} cannot be {name!r}: {reason}",
            hint='Give the plain name of a skill, or "all" in place of the list.',
        )


def _skill_problem(name: str) -> str:
    if name != name.strip():
        return "it has blanks around it"
    if any(character in name for character in "(),"):
        return "it has a parenthesis or a comma, which end a rule"
    if re.search(_CONTROL, name):
        return "it has a control character"
    if name == "*" or name.endswith((":*", " *")):
        return "it stands for more than one skill"
    if name.startswith("/"):
        return "it begins with a slash, as a command does"
    if "\\\\" in name or name.endswith("\\"):
        return "it has a backslash that would escape what follows"
    return ""


# Options that depend on each other.


class PermissionShadowedWarning(UserWarning):
    """The `permission` callback will not be asked about some of what the agent does."""


class Rule(msgspec.Struct, frozen=True):
    """Options that cannot work together."""

    option: str
    """The rule is about this one, if it is set."""
    broken: Callable[[Options], object]
    says: str
    hint: str


_KEYS: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


def _goes_on(o: Options) -> bool:
    return o.resume is not None or o.continue_conversation


def _is_set(value: object) -> bool:
    # Not by its truth: an empty store of the user's counts.
    return value != () if isinstance(value, tuple) else value is not None and value is not False


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
        "permission",
        lambda o: o.permission_prompt_tool_name is not None,
        "`permission` and `permission_prompt_tool_name` cannot both decide",
        "Leave one of them out.",
    ),
    Rule(
        "permission",
        lambda o: o.permission_prompts == "none",
        '`permission` is never asked with `permission_prompts="none"`',
        "Leave one of them out.",
    ),
    Rule(
        "permission_prompt_tool_name",
        _answers_person,
        "`on_question` and `on_plan` are never asked with `permission_prompt_tool_name`",
        "Give `permission` in its place, or leave them out.",
    ),
    Rule(
        "permission_prompts",
        lambda o: _answers_person(o) and o.permission_prompts == "none",
        '`on_question` and `on_plan` are never asked with `permission_prompts="none"`',
        "Leave it or them out.",
    ),
    Rule(
        "approvals",
        lambda o: (
            o.approvals is not None
            and (o.permission_prompt_tool_name is not None or o.permission_prompts == "none")
        ),
        '`approvals` decide nothing with `permission_prompt_tool_name` or `permission_prompts="none"`',
        "Leave one of them out.",
    ),
    Rule(
        "permission_prompts",
        lambda o: o.permission_prompt_tool_name is not None and o.permission_prompts == "none",
        '`permission_prompt_tool_name` is never asked with `permission_prompts="none"`',
        "Leave one of them out.",
    ),
    Rule(
        "supported_dialog_kinds",
        lambda o: o.on_user_dialog is None,
        "`supported_dialog_kinds` needs `on_user_dialog`, which answers them",
        "Give a function as `on_user_dialog`, or leave the kinds out.",
    ),
    Rule(
        "on_auth_refresh",
        lambda o: any(map(o.env.get, _KEYS)),
        "`on_auth_refresh` has no effect with an API key in `env`, which is used instead of tokens",
        "Leave out `ANTHROPIC_API_KEY` and `ANTHROPIC_AUTH_TOKEN`, or `on_auth_refresh`.",
    ),
    # The program and its model.
    Rule(
        "executable_args",
        lambda o: o.executable is None,
        "`executable_args` needs `executable`, which they are for",
        "Arguments for Claude Code itself go into `extra_args`.",
    ),
    Rule(
        "fallback_model",
        _same_model_twice,
        "`fallback_model` names `model`, or one model twice",
        "Name models that differ from `model` and from each other.",
    ),
    # Prompts.
    Rule(
        "append_system_prompt",
        lambda o: isinstance(o.system_prompt, PresetPrompt) and o.system_prompt.append is not None,
        "`append_system_prompt` and `PresetPrompt.append` say the same",
        "Give one of them, with both texts.",
    ),
    Rule(
        "append_system_prompt",
        lambda o: isinstance(o.system_prompt, FilePrompt),
        "`append_system_prompt` cannot be added to a `FilePrompt`, which the agent reads itself",
        "Put the text into the file, or read the file and give its text as `system_prompt`.",
    ),
    # Sessions.
    Rule(
        "continue_conversation",
        lambda o: o.resume is not None,
        "`continue_conversation` and `resume` name two sessions to continue",
        "Leave one of them out.",
    ),
    Rule(
        "fork_session",
        lambda o: not _goes_on(o),
        "`fork_session` needs a session to copy",
        "Set `resume` or `continue_conversation`, or leave it out.",
    ),
    Rule(
        "resume_session_at",
        lambda o: o.resume is None,
        "`resume_session_at` needs `resume`",
        "Set `resume` to the session that the message is in.",
    ),
    Rule(
        "resume_drops_turn",
        lambda o: o.resume is None or o.resume_session_at is None,
        "`resume_drops_turn` needs `resume` and `resume_session_at`",
        "Set `resume_session_at` to the last message that is to stay.",
    ),
    Rule(
        "session_id",
        lambda o: _goes_on(o) and not o.fork_session,
        "`session_id` is for a new session, and `resume` or `continue_conversation` continues an old one",
        "Leave it out, or set `fork_session`.",
    ),
    Rule(
        "session_store",
        lambda o: not o.persist_session,
        "`session_store` needs `persist_session`: it gets what is written to disk",
        "Leave `persist_session` as it is.",
    ),
    Rule(
        "session_store",
        lambda o: o.enable_file_checkpointing,
        "`session_store` cannot keep the copies of files that `enable_file_checkpointing` makes",
        "Leave one of them out.",
    ),
    Rule(
        "session_store",
        lambda o: (
            not is_path(o.session_store)
            and o.continue_conversation
            and not callable(getattr(o.session_store, "list_sessions", None))
        ),
        "`continue_conversation` needs a `session_store` with `list_sessions`, to find the latest session",
        "Add that method, or name the session as `resume`.",
    ),
    Rule(
        "session_store",
        lambda o: (
            _goes_on(o)
            and o.transport is None
            and o.runner is not None
            and not o.runner.is_local
            and not _is_fresh(o)
        ),
        "a session of a `session_store` cannot be put onto the machine that the `runner` leads to",
        'Use `isolation="hermetic"`, for which it travels with the command.',
    ),
    Rule(
        "approvals",
        lambda o: (
            o.approvals is not None and o.session_store is None and (_is_fresh(o) or not o.persist_session)
        ),
        "`approvals` needs a session that is kept, and nobody could go on with this one",
        "Set a `session_store`; or leave `persist_session` as it is, and give a hermetic run a folder that "
        "lasts, `Isolation.hermetic(config_dir)`.",
    ),
    # Isolation.
    Rule(
        "isolation",
        lambda o: _is_fresh(o) and _goes_on(o) and o.session_store is None,
        "a hermetic run has no sessions to continue",
        "Give it a folder that lasts, `Isolation.hermetic(config_dir)`, or a `session_store`.",
    ),
    Rule(
        "isolation",
        lambda o: o.isolation.is_hermetic and o.setting_sources != (),
        "a hermetic run reads no settings of the machine, and `setting_sources` names some",
        "Leave `setting_sources` out, and give what is needed as `settings`.",
    ),
    Rule(
        "env",
        lambda o: (
            "CLAUDE_CONFIG_DIR" in o.env and (o.isolation.is_hermetic or o.isolation.config_dir is not None)
        ),
        "`env` sets CLAUDE_CONFIG_DIR, and `isolation` decides on that folder",
        "Give the folder as `Isolation(config_dir=…)` or `Isolation.hermetic(…)` alone.",
    ),
)


def check(options: Options, given: Collection[str]) -> None:
    """Raise `OptionsError` for the first rule that is broken, if only these options are set."""
    for rule in RULES:
        if rule.option in given and _is_set(getattr(options, rule.option)) and rule.broken(options):
            raise OptionsError(rule.says, hint=rule.hint)


_CALLBACKS: Final = ("permission", "approvals", "on_question", "on_plan")


def warn_of_shadowed_permission(options: Options, given: Collection[str]) -> None:
    """Warn if there is a callback, and something that it will not be asked about. One that `warns_itself`, in
    the words of another API, is left to do so."""
    names = [name for name in _CALLBACKS if name in given and getattr(options, name) is not None]
    if not names or getattr(options.permission, "warns_itself", False):
        return
    if _mode(options) == "dontAsk":
        callbacks = " and ".join(f"`{name}`" for name in names)
        verb = "is" if len(names) == 1 else "are"
        why = 'the mode "dontAsk" denies what is not allowed already'
        _warn(f"{callbacks} {verb} not asked about anything: {why}.")
    elif names[0] in _CALLBACKS[:2] and (shadows := _shadows(options)):
        _warn(f"`{names[0]}` is not asked about {' and '.join(shadows)}. Leave out what it should decide.")


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


# Flags in `extra_args`.

# How Outrider talks to the program; what would end the program; what would take it away from this process.
_OURS: Final = """
    output-format input-format verbose print
    help version init-only rewind-files
    attach-serve await-claim background bg cloud desktop environment from-pr interactive pool rc remote
    remote-control sdk-url teleport tmux
"""

OURS: Final = frozenset(_OURS.split())
"""Flags that no one may set."""

_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_-]+\Z"


def is_free_flag(place: str, name: str) -> None:
    """Raise for the name of a flag that cannot be one, or that is not free."""
    if name.startswith("-"):
        raise OptionsError(f"{place} cannot be {name!r}", hint=f"Leave out the dashes: {name.lstrip('-')!r}.")
    if not re.match(_NAME, name):
        raise OptionsError(
            f"{place} cannot be {name!r}",
            hint="Give the long name of a flag, without its dashes, and its value as the value: "
            '{"flag": "value"}, or {"flag": None} for one without.',
        )
    flag = name.replace("_", "-")
    if option := flag_owners().get(flag):
        raise OptionsError(f"{place} cannot be {name!r}: `{option}` decides on it", hint=f"Set `{option}`.")
    if flag in OURS:
        why = "with it, Outrider could not talk to Claude Code"
        raise OptionsError(f"{place} cannot be {name!r}: {why}", hint="Leave it out.")


# Options that depend on the machine.

# What cmd.exe, and programs that are started through it, give a meaning to even inside quotes.
_SPECIAL_ON_WINDOWS: Final = frozenset('&|<>^%!"\r\n')
_OPEN_TEXTS: Final = ("resume", "session_id", "resume_session_at", "resume_drops_turn")


def check_place(
    options: Options,
    *,
    euid: int | None,
    platform: str,
    environ: Mapping[str, str],
    is_dir: Callable[[str], bool] = os.path.isdir,
    exists: Callable[[str], bool] = os.path.exists,
) -> None:
    """Raise if these options cannot work on this machine, before anything is started.

    `euid` is the effective user id of the program, None where there is none; `platform`, as in
    `sys.platform`; `environ`, what the program inherits. Raises `FolderNotFound` or `OptionsError`. What runs
    elsewhere is judged there: for a runner that is not local, only what holds everywhere is checked.
    """
    if platform == "win32":
        _check_windows(options)
    if options.runner is None or options.runner.is_local:
        _check_folder(options, is_dir, exists)
        _check_root(options, euid, environ)


def _check_windows(options: Options) -> None:
    if options.user is not None:
        raise OptionsError(
            f"`user` cannot be {options.user!r}: on Windows a program cannot be started as another user",
            hint="Leave it out, or start this process as that user.",
        )
    for name in _OPEN_TEXTS:
        value: str | None = getattr(options, name)
        if value is not None and (found := sorted(_SPECIAL_ON_WINDOWS & set(value))):
            shown = " ".join(map(repr, found))
            raise OptionsError(
                f"`{name}` contains {shown}, which Windows may take for a command: {value!r}",
                hint="Name the session or message by its UUID.",
            )


def _check_folder(options: Options, is_dir: Callable[[str], bool], exists: Callable[[str], bool]) -> None:
    if options.cwd is None or is_dir(options.cwd):
        return
    if exists(options.cwd):
        raise OptionsError(f"`cwd` must be a folder, and {options.cwd!r} is not one", hint="Give its folder.")
    is_home = options.cwd.startswith("~")
    raise FolderNotFound(options.cwd, hint="Give `Path(…).expanduser()`." if is_home else "")


def _check_root(options: Options, euid: int | None, environ: Mapping[str, str]) -> None:
    skips = options.permission_mode == "bypassPermissions" or options.allow_dangerously_skip_permissions
    if not skips or euid != 0:
        return
    seen = {**environ, **options.env}
    if seen.get("IS_SANDBOX") != "1" and not seen.get("CLAUDE_CODE_BUBBLEWRAP"):
        cause = (
            "allow_dangerously_skip_permissions"
            if options.allow_dangerously_skip_permissions
            else 'permission_mode="bypassPermissions"'
        )
        raise OptionsError(
            f"`{cause}` is refused by the agent for root, because nothing at all would hold it back",
            hint="Run it as another `user`, choose another `permission_mode` with rules as `allowed_tools`, "
            'or set `env={"IS_SANDBOX": "1"}` if this is a container that can be thrown away.',
        )
