"""`ClaudeAgentOptions` as options of a session: the same effect, spelled in Outrider's way.

What the reference leaves to the program is left to it here, too. Does not start anything.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from outrider.compat import _option_values as spelled
from outrider.compat._callbacks import decide_with, hooks_of
from outrider.compat._extra_args import with_flags
from outrider.compat._skills import checked_skills
from outrider.compat._transport import native
from outrider.compat.types import CanUseToolShadowedWarning, ClaudeAgentOptions
from outrider.errors import SessionNotFound
from outrider.launch import make_environment
from outrider.options import Options, Timeouts
from outrider.options._validation import level_of_caller
from outrider.transcripts import check_can_continue, config_folder
from outrider.transports import is_intercepted

if TYPE_CHECKING:
    from outrider import transports
    from outrider.compat._extra_args import Fields
    from outrider.compat._transport import Transport
    from outrider.options import OptionFields

_SAME: Final = (
    "strict_mcp_config",
    "permission_mode",
    "max_budget_usd",
    "cli_path",
    "max_buffer_size",
    "user",
    "include_partial_messages",
    "include_hook_events",
    "forward_subagent_text",
    "verbatim_prompts",
    "continue_conversation",
    "fork_session",
    "resume_drops_turn",
    "setting_sources",
    "effort",
    "enable_file_checkpointing",
    "session_store",
    "session_store_flush",
    "task_budget",
    "client_app",
)
"""Options that are called the same, and mean the same when they are set."""

_DROPPED_IF_EMPTY: Final = (
    "model",
    "fallback_model",
    "max_turns",
    "resume",
    "session_id",
    "resume_session_at",
    "permission_prompt_tool_name",
    "settings",
    "cwd",
)
"""Options of which the reference leaves out whatever is empty."""

_LISTS: Final = ("betas", "add_dirs")
"""Those of which None is no more than an empty list."""


def translated_options(
    given: ClaudeAgentOptions | None, transport: Transport | transports.Transport | None = None
) -> Options:
    """The options of a session. Raises what the reference raises for what cannot work: `ValueError`,
    `TypeError`."""
    options = ClaudeAgentOptions() if given is None else given
    if options.can_use_tool is not None and options.permission_prompt_tool_name:
        raise ValueError(
            "can_use_tool callback cannot be used with permission_prompt_tool_name: one of them decides."
        )
    fields = _settled(with_flags(_fields(options), options.extra_args), transport)
    made = Options(**cast("OptionFields", fields))
    if made.continue_conversation and not _can_continue(made):
        # The program begins a new one then.
        made = made.replace(continue_conversation=False, fork_session=False)
    _warn_of_what_is_not_asked(options)
    return made


def _fields(options: ClaudeAgentOptions) -> Fields:
    fields: Fields = {name: getattr(options, name) for name in _SAME}
    fields |= {name: getattr(options, name) or None for name in _DROPPED_IF_EMPTY}
    fields |= {name: getattr(options, name) or () for name in _LISTS}
    fields |= {
        "tools": spelled.tools(options.tools),
        "allowed_tools": spelled.rules(options.allowed_tools or ()),
        "disallowed_tools": spelled.rules(options.disallowed_tools or ()),
        # The reference takes any name, and sends it as it is.
        "extra_tools": ("*",),
        "skills": checked_skills(options.skills),
        "system_prompt": spelled.prompt(options.system_prompt),
        "append_system_prompt": spelled.appended_prompt(options.system_prompt),
        "thinking": spelled.thinking(options.thinking),
        "max_thinking_tokens": spelled.thinking_tokens(options.thinking, options.max_thinking_tokens),
        "mcp_servers": spelled.servers(options.mcp_servers),
        "agents": spelled.agents(options.agents),
        "plugins": spelled.plugins(options.plugins or ()),
        "output_format": spelled.output_format(options.output_format),
        "sandbox": spelled.sandbox(options.sandbox),
        # Alone, they are handed on unread.
        "strict_settings_merge": options.sandbox is not None,
        "env": spelled.variables(options),
        "stderr": _to_stderr if options.stderr is None else options.stderr,
        "hooks": hooks_of(options.hooks),
        "permission": decide_with(options.can_use_tool),
        "timeouts": _timeouts(options),
        "give_up_on": (),
    }
    if options.skills is not None and options.setting_sources is None:
        # Else no skill of the user's or the project's would be found.
        fields["setting_sources"] = ("user", "project")
    return fields


def _settled(fields: Fields, transport: Transport | transports.Transport | None) -> Fields:
    """The fields, where they depend on each other, and the program takes what Outrider does not."""
    settled = {**fields}
    if transport is not None:
        settled["transport"] = native(transport)
        if fields["session_store"] is not None:
            # Nothing is started that could read what was laid out.
            settled |= {"resume": None, "continue_conversation": False}
    if settled["resume"]:
        # It says more exactly which one.
        settled["continue_conversation"] = False
    elif settled["continue_conversation"] is False:
        # There is nothing to copy.
        settled["fork_session"] = False
    settled["fallback_model"] = spelled.fallback_models(fields["fallback_model"], fields["model"])
    return settled


def _can_continue(options: Options) -> bool:
    """Whether there is a session to go on with, as far as that can be known here."""
    elsewhere = (options.session_store, options.user, options.transport)
    if any(place is not None for place in elsewhere) or is_intercepted():
        return True
    try:
        check_can_continue(config_folder(make_environment(options)), options.cwd or Path.cwd())
    except SessionNotFound:
        return False
    except OSError:
        # The folder is not there, which is said when something is started in it.
        return True
    return True


def _timeouts(options: ClaudeAgentOptions) -> Timeouts:
    """Turns may take as long as they like, as long as there is a sign of life."""
    limit = cast("object", options.load_timeout_ms)
    if options.session_store is None:
        return Timeouts(turn=None, background=None, retries=None)
    if isinstance(limit, bool) or not isinstance(limit, int | float) or limit <= 0:
        raise ValueError(f"load_timeout_ms must be a number over 0, not {limit!r}")
    return Timeouts(turn=None, background=None, retries=None, store=limit / 1000)


def _to_stderr(line: str) -> None:
    # As if the program had inherited it. A process without a terminal may have none.
    if sys.stderr is not None:
        sys.stderr.write(f"{line}\n")


def _warn_of_what_is_not_asked(options: ClaudeAgentOptions) -> None:
    if options.can_use_tool is None:
        return
    if options.permission_mode == "bypassPermissions":
        why = "the permission_mode 'bypassPermissions' allows every call that no rule denies"
        _warn(f"can_use_tool will not be invoked: {why}. A PreToolUse hook is asked about each.")
        return
    rules = [*(options.allowed_tools or ()), *(("Skill",) if options.skills == "all" else ())]
    whole = dict.fromkeys(
        name
        for name, bracket, inside in (rule.partition("(") for rule in rules)
        if not bracket or inside in (")", "*)")
    )
    if whole:
        why = "allowed_tools allows them whatever they are used for"
        hint = "Leave them out, narrow the rules, or use a PreToolUse hook"
        _warn(f"can_use_tool will not be invoked for: {', '.join(whole)}. That is because {why}. {hint}.")


def _warn(text: str) -> None:
    warnings.warn(text, CanUseToolShadowedWarning, stacklevel=level_of_caller())
