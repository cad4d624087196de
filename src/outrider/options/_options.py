"""Defines `Options`: every setting for a run of Claude Code, as one value.

Does not apply them: `outrider.launch` has the table for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeAlias, cast

import msgspec

from outrider.errors import OptionsError
from outrider.options._checks import check, warn_of_shadowed_permission
from outrider.options._table import VALIDATORS
from outrider.options._validators import fold, near
from outrider.options._values import EnvPolicy, Isolation, Timeouts, defaults_of, differing, repr_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike
    from typing import Self, Unpack

    from outrider.command import Runner
    from outrider.options._fields import OptionFields
    from outrider.options._servers import AgentDefinition, McpServer
    from outrider.options._values import (
        AdaptiveThinking,
        CustomPrompt,
        DisabledThinking,
        EnabledThinking,
        FilePrompt,
        JsonSchemaFormat,
        LocalPlugin,
        PresetPrompt,
        Sandbox,
        Trace,
    )
    from outrider.transcripts import SessionStore
    from outrider.wire import JsonObject
    from outrider.wire.choices import Beta, EffortLevel, PermissionMode, SettingSource
    from outrider.wire.hooks import HookEvent

    SystemPrompt: TypeAlias = PresetPrompt | CustomPrompt | FilePrompt
    Thinking: TypeAlias = AdaptiveThinking | EnabledThinking | DisabledThinking


OTHER_NAMES: Final[dict[str, str]] = {
    "abortController": "Cancel the task, or the turn with `turn.cancel()`.",
    "additionalDirectories": "It is called `add_dirs`.",
    "askUserQuestion": "It is called `question_preview_format`.",
    "can_use_tool": "It is called `permission`.",
    "canUseTool": "It is called `permission`.",
    "cli": "It is called `cli_path`.",
    "continue": "It is called `continue_conversation`.",
    "continue_": "It is called `continue_conversation`.",
    "debug_stderr": "It is called `stderr`, and is a function that gets each line.",
    "getOAuthToken": "Put the token into `env`, as `CLAUDE_CODE_OAUTH_TOKEN`.",
    "load_timeout_ms": "It is `timeouts=Timeouts(store=…)`, in seconds.",
    "loadTimeoutMs": "It is `timeouts=Timeouts(store=…)`, in seconds.",
    "max_tokens": "There is `max_thinking_tokens`, `task_budget` and `max_budget_usd`.",
    "pathToClaudeCodeExecutable": "It is called `cli_path`.",
    "spawnClaudeCodeProcess": "It is called `runner`.",
    "timeout": "It is `timeouts=Timeouts(turn=…)`, in seconds.",
    "toolConfig": "It is called `question_preview_format`.",
    "working_directory": "It is called `cwd`.",
}


def refuse_unknown(given: Iterable[str], known: Sequence[str]) -> NoReturn:
    """Raise for the names that are not known, with what was probably meant."""
    unknown = [name for name in given if name not in known]
    named = ", ".join(f"`{name}`" for name in unknown)
    hints = (_hint(name, known) for name in unknown)
    raise OptionsError(
        f"there is no option {named}",
        hint=" ".join(dict.fromkeys(filter(None, hints))) or "`Options` lists all that there are.",
    )


def _hint(name: str, known: Sequence[str]) -> str:
    folded = {fold(other): hint for other, hint in OTHER_NAMES.items()}
    if fold(name) in folded:
        return folded[fold(name)]
    meant = near(name, known)
    return f"Did you mean `{meant}`?" if meant else ""


if TYPE_CHECKING:
    _Meta = msgspec.StructMeta
else:

    class _Meta(msgspec.StructMeta):
        """Looks at the names first: a struct says no more of an unknown one than that it is unexpected."""

        def __call__(self, *args, **fields):
            if any(name not in self.__struct_fields__ for name in fields):
                refuse_unknown(fields, self.__struct_fields__)
            return super().__call__(*args, **fields)


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=_Meta):
    """How an agent is to be run. A value: change it with `replace`, `with_env`, `with_hook`.

    Each option may be given in the forms that `OptionFields` lists, and is kept in the one form that stands
    here. Lists, mappings and parts are copied: what is done to them afterwards changes no options.

    Raises `OptionsError` for what cannot work, and names the option, the value and what to give instead. What
    is on the machine is looked at when the agent is started, not here.
    """

    if TYPE_CHECKING:

        def __init__(self, **fields: Unpack[OptionFields]) -> None: ...

    # The program.

    cli_path: str | None = None
    """The agent's program. Unset: it is searched for."""
    bundled_path: str | None = None
    """A copy of the program that comes with your application: used before PATH is searched."""
    executable: str | None = None
    """What runs the program, for one that is a script: `node`, `bun`. Unset: it runs by itself."""
    executable_args: tuple[str, ...] = ()
    """Arguments for `executable`, which must be set, before the program."""
    extra_args: Mapping[str, str | None] = {}
    """Further flags, without their dashes: None for one without a value. A flag that another option stands
    for, or that Outrider needs for itself, is refused."""
    runner: Runner | None = None
    """Where the program runs: over ssh, in a container, under another command. Unset: on this machine."""
    transport: object | None = None
    """Talk over this instead of starting a program."""

    # Where it runs.

    cwd: str | None = None
    """The working folder. Unset: that of this process."""
    add_dirs: tuple[str, ...] = ()
    """Further folders that the agent's tools may use."""
    project_config_root: str | None = None
    """The folder whose project configuration counts, as an absolute path. Unset: found from `cwd`."""
    env: Mapping[str, str] = {}
    """Variables for the program, over those that `env_policy` lets through. `CLAUDE_CONFIG_DIR` cannot be
    among them if `isolation` decides on that folder."""
    env_policy: EnvPolicy = EnvPolicy.INHERIT
    """Which variables of this process the program gets. Unset: all; none, in a hermetic run or on another
    machine. A list of names: only those."""
    isolation: Isolation = Isolation.INHERIT
    """How much of this machine's configuration the program sees; `"hermetic"`: none, so that the key for the
    API has to be in `env`, or named in `env_policy`. A hermetic run names no `setting_sources`, and can
    resume only with a `config_dir` of its own or a `session_store`."""
    user: str | int | None = None
    """The user that the program runs as, by name or number. Unset: that of this process. Not on Windows."""
    timeouts: Timeouts = Timeouts()
    """Deadlines. Unset: the defaults of `Timeouts`, with which every turn ends."""

    give_up_on: tuple[int, ...] = (401,)
    """HTTP statuses of the API at which a turn fails at once, where the agent would try again for minutes."""

    # The model.

    model: str | None = None
    """A model's name or short name. Unset: the agent's default."""
    fallback_model: tuple[str, ...] | None = None
    """Models to try, in this order, when `model` is overloaded; neither `model` itself nor one twice. Unset:
    none."""
    betas: tuple[Beta, ...] = ()
    """Features of the API that have to be asked for."""
    thinking: Thinking | None = None
    """Whether the model thinks before it answers, and how far; beats `max_thinking_tokens`. Unset: the agent
    decides."""
    max_thinking_tokens: int | None = None
    """The most tokens to think with; 0 turns thinking off. Unset: the agent decides."""
    effort: EffortLevel | None = None
    """How hard the model works on an answer. Unset: the agent decides."""
    max_turns: int | None = None
    """How many times the model may be called for one prompt, 1 or more. Unset: no limit."""
    max_budget_usd: float | None = None
    """What the session may cost, more than 0. Unset: no limit."""
    task_budget: int | None = None
    """How many tokens the model is told that it has for its task, 1 or more. Unset: it is told nothing."""
    output_format: JsonSchemaFormat | None = None
    """The form that the final answer must have. Unset: any text."""

    # What it is told.

    system_prompt: SystemPrompt | None = None
    """Replaces the agent's own system prompt (a text), keeps it (`PresetPrompt`), or is read from a file by
    the agent. Unset: an empty one, or the agent's own if there is an `append_system_prompt`."""
    append_system_prompt: str | None = None
    """Added to the system prompt. Not together with `PresetPrompt.append`, nor with a `FilePrompt`."""
    append_subagent_system_prompt: str | None = None
    """Added to the system prompt of every subagent."""
    plan_mode_instructions: str | None = None
    """What the agent is told in plan mode. Unset: its own instructions."""
    verbatim_prompts: bool = False
    """Prompts are taken as written: no `/command` and no `@file` in them is carried out."""

    # What it may use.

    tools: tuple[object, ...] | Literal["default"] | None = None
    """Names of built-in tools to offer, and tools of your own. An empty list: no built-in tool. Unset, or
    only tools of your own: all built-in ones."""
    allowed_tools: tuple[str, ...] = ()
    """Rules for what may be used without asking: `Read`, `Bash(git *)`, `mcp__server__tool`, a tool of yours
    by its name. Nothing is asked for them, also not the `permission` callback."""
    disallowed_tools: tuple[str, ...] = ()
    """Rules for what may not be used at all."""
    extra_tools: tuple[str, ...] = ()
    """Names of tools that the session can have and Outrider does not know, or patterns for them. A name that
    is neither known nor here is an error, in rules, policies, matchers of hooks and subagents."""
    tool_aliases: Mapping[str, str] = {}
    """Other names by which the model may call tools, and which tool each stands for: `{"Shell": "Bash"}`."""
    question_preview_format: Literal["markdown", "html"] | None = None
    """How the agent writes previews in the questions that it asks. Unset: it writes none."""
    skills: tuple[str, ...] | Literal["all"] | None = None
    """Skills that may be used: all, or those named. Unset: the agent decides, and asks. Those of the user and
    of the project are found only if `setting_sources` names these."""
    agents: Mapping[str, AgentDefinition] = {}
    """Subagents by name."""
    agent: str | None = None
    """The subagent that is the main one. Unset: the agent itself."""
    plugins: tuple[LocalPlugin, ...] = ()
    """Plugins to load: folders or .zip files; no other kind is known."""
    plugin_delivery: Literal["argv", "initialize"] = "argv"
    """Whether plugins are named on the command line or in the first request."""
    mcp_servers: Mapping[str, McpServer] | str = {}
    """MCP servers by name, or the path of a file that lists them. A server object of this process stands for
    an `SdkServer`."""
    strict_mcp_config: bool = False
    """Only the servers of `mcp_servers`, none of those that the machine or the project configures."""

    # What it must ask for.

    permission_mode: PermissionMode | None = None
    """What the agent may do without asking. Unset: `default`, unless its settings say otherwise."""
    permission: Callable[..., object] | None = None
    """Decides what the agent asks for: a function, or a `Policy`. Not with `permission_prompt_tool_name`, nor
    with `permission_prompts="none"`. Unset: what it asks for is denied."""
    on_question: Callable[..., object] | None = None
    """Answers the questions that the agent asks the user, one by one. Not with `permission_prompt_tool_name`,
    nor with `permission_prompts="none"`. Unset: `permission` gets them."""
    on_plan: Callable[..., object] | None = None
    """Approves the plans that the agent makes in plan mode, or sends them back. Not with
    `permission_prompt_tool_name`, nor with `permission_prompts="none"`. Unset: `permission` gets them."""
    permission_prompt_tool_name: str | None = None
    """An MCP tool that decides in place of `permission`."""
    permission_prompts: Literal["host", "none"] | None = None
    """Who is asked: this process, or nobody, so that what would be asked is denied. Unset: this process."""
    allow_dangerously_skip_permissions: bool = False
    """Allow a later change to `bypassPermissions`. Refused for root outside of a sandbox."""
    hooks: Mapping[str, tuple[object, ...]] = {}
    """A list of hooks; or by event, what to call: hooks, or plain functions."""
    on_elicitation: Callable[..., object] | None = None
    """Answers what an MCP server asks the user. Unset: it is declined."""
    on_user_dialog: Callable[..., object] | None = None
    """Answers dialogs of the agent. Unset: it shows none."""
    supported_dialog_kinds: tuple[str, ...] = ()
    """The kinds of dialog that `on_user_dialog`, which must be set, can answer."""
    sandbox: Sandbox | None = None
    """How shell commands are confined; takes the place of `sandbox` in `settings`. Unset: as these say."""

    # Settings.

    setting_sources: tuple[SettingSource, ...] | None = ()
    """Which settings files of the machine count: none by default. None: those that the program reads by
    itself."""
    settings: str | JsonObject | None = None
    """Settings that come before all files: the path of a file, JSON text, or a mapping."""
    managed_settings: JsonObject | None = None
    """Settings that nothing can override."""
    strict_settings_merge: bool = True
    """Whether `settings` that cannot be read, and so not be joined with `sandbox`, are an error. If not, a
    warning, and they are left out."""

    # Sessions.

    continue_conversation: bool = False
    """Go on with the latest session of `cwd`. Not with `resume`."""
    resume: str | None = None
    """Go on with this session: its id or title. A session that is not there is an error."""
    fork_session: bool = False
    """Go on in a copy, and leave the session as it is. Needs `resume` or `continue_conversation`."""
    resume_session_at: str | None = None
    """Go on from this message, by its uuid, and forget what came after it. Needs `resume`."""
    resume_drops_turn: str | None = None
    """The prompt, by its uuid, of the turn that `resume_session_at` forgets: if more would be forgotten,
    nothing is, and the start fails. Needs `resume_session_at`."""
    session_id: str | None = None
    """The id of the new session, a UUID. With `resume` or `continue_conversation` only if `fork_session` is
    set. Unset: the agent makes one."""
    title: str | None = None
    """The session's title. Unset: the agent finds one."""
    persist_session: bool = True
    """Whether the session is kept on disk, so that it can be resumed."""
    enable_file_checkpointing: bool = False
    """Keep copies of files before they are changed, for `rewind_files`. Not with `session_store`."""
    session_store: SessionStore | str | PathLike[str] | None = None
    """Where sessions are kept besides the disk, and resumed from: a store, or its URL or path, which is
    opened and closed with the session. Needs `persist_session`."""
    session_store_flush: Literal["batched", "eager"] = "batched"
    """Whether the store gets entries in batches or at once. Before a result it has all of them either way."""

    # What comes back.

    include_partial_messages: bool = False
    """Stream events while the model writes."""
    include_hook_events: bool = False
    """A message for each hook that starts and ends."""
    replay_user_messages: bool = False
    """Your own messages too, as the agent takes them up."""
    forward_subagent_text: bool = False
    """What subagents say and think, not their tool calls alone."""
    forward_nested_subagent_tool_calls: bool = False
    """Tool calls of subagents of subagents."""
    prompt_suggestions: bool = False
    """A guess at your next prompt after each turn."""
    agent_progress_summaries: bool = False
    """Summaries of what subagents are doing."""
    per_task_stop_affordance: bool = False
    """An interrupt leaves background tasks alone: they are stopped one by one."""
    max_buffer_size: int | None = None
    """The largest message, in bytes. Unset or 0: a large default, beyond which a message is skipped; set:
    beyond it, an error."""
    stderr: Callable[[str], object] | None = None
    """Gets each line that the program writes to stderr. Unset: the last ones are kept for errors."""
    debug: bool | str = False
    """The program's debug log: all of it, or the categories of this filter."""
    debug_file: str | None = None
    """Where that log goes."""
    client_app: str | None = None
    """A name for your application, which the program sends along with its requests; empty: none."""
    trace: Trace | None = None
    """Write down all that is said, with times, secrets hidden: into a file, or a folder with a file for each
    session. Unset: nothing is."""

    def __post_init__(self) -> None:
        defaults = defaults_of(type(self))
        for name, read in VALIDATORS.items():
            given = getattr(self, name)
            if given is not defaults[name] and (normal := read(f"`{name}`", given)) is not given:
                msgspec.structs.force_setattr(self, name, normal)
        check(self)
        warn_of_shadowed_permission(self)

    def replace(self, **changes: Unpack[OptionFields]) -> Self:
        """A copy with these options changed, and checked anew. `env` and `hooks` are replaced, not added
        to.
        """
        return type(self)(**cast("OptionFields", {**self._given(), **changes}))

    def with_env(self, variables: Mapping[str, str] | None = None, /, **more: str) -> Self:
        """A copy with these variables added to `env`."""
        return self.replace(env={**self.env, **(variables or {}), **more})

    def with_hook(self, event: HookEvent, *hooks: object) -> Self:
        """A copy with these hooks added to those of an event."""
        all_hooks = {**self.hooks, event: (*self.hooks.get(event, ()), *hooks)}
        return self.replace(hooks=cast("Mapping[HookEvent, tuple[object, ...]]", all_hooks))

    def _given(self) -> OptionFields:
        """The options that differ from their defaults."""
        return cast("OptionFields", differing(self))

    def __copy__(self) -> Self:
        # A struct's own copy would share its mappings.
        return self.replace()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({repr_fields(self._given())})"
