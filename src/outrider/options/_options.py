"""Declares every option once: its type, default, validator, destinations and description.

`OptionFields` has the forms in which each may be given, and `Options` keeps one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict, cast

import msgspec

from outrider.command import Runner
from outrider.options import _encode as encode
from outrider.options import _forms as forms
from outrider.options._checks import (
    check,
    is_free_flag,
    is_tool_name,
    warn_of_shadowed_permission,
)
from outrider.options._forms import (
    AgentDefinition,
    McpServer,
    agents_by_name,
    effort_level,
    mode_name,
    variables,
)
from outrider.options._table import (
    File,
    Flag,
    Host,
    Init,
    OptionsMeta,
    Variable,
    make_unchecked,
    option,
    validated,
)
from outrider.options._validators import (
    above_zero,
    any_text,
    checked,
    choice,
    either,
    function,
    json_object,
    listed,
    mapped,
    optional,
    path_text,
    secret_text,
    switch,
    text,
    thing,
    whole,
)
from outrider.options._values import (
    AdaptiveThinking,
    CustomPrompt,
    DisabledThinking,
    EnabledThinking,
    EnvPolicy,
    FilePrompt,
    Isolation,
    JsonSchemaFormat,
    LocalPlugin,
    PresetPrompt,
    Sandbox,
    Timeouts,
    Trace,
    differing,
    plain,
    repr_fields,
    value_of,
)
from outrider.wire.choices import SETTING_SOURCES, Beta, EffortLevel, PermissionMode, SettingSource

if TYPE_CHECKING:
    from typing import Self, Unpack

    from outrider.approvals import Approvals
    from outrider.handlers import (
        DialogRequest,
        ElicitationRequest,
        HookContext,
        PermissionRequest,
        Plan,
        Question,
    )
    from outrider.telemetry import Telemetry
    from outrider.transcripts import SessionStore
    from outrider.wire import JsonObject
    from outrider.wire.hooks import HookEvent

    # Each takes the input of its own event.
    HookFunction: TypeAlias = Callable[[Any], object] | Callable[[Any, HookContext], object]
else:
    # Of layers above, or in modules that few need; at run time the hints say no more.
    Approvals = DialogRequest = ElicitationRequest = PermissionRequest = Plan = object
    Question = SessionStore = Telemetry = object
    HookEvent, HookFunction = str, Callable[..., object]

StrPath: TypeAlias = str | PathLike[str]

Plain: TypeAlias = Mapping[str, object]
"""A value as a plain mapping, with the keys of the Python fields or those of Claude Code."""

SystemPrompt: TypeAlias = PresetPrompt | CustomPrompt | FilePrompt
Thinking: TypeAlias = AdaptiveThinking | EnabledThinking | DisabledThinking


_APPENDED = ("append_system_prompt",)
_BY_LIST = (2, 1, 110)
"""The first version that takes the system prompt in `initialize`, as it is sent there."""


class EventHook(Protocol):
    """A function with its event, as `@outrider.hook` makes it."""

    @property
    def event(self) -> str: ...


class OptionFields(TypedDict, total=False):
    """The options as keywords: what `Options` and all that takes options one by one accept."""

    cli_path: StrPath | None
    bundled_path: StrPath | None
    executable: StrPath | None
    executable_args: Sequence[str]
    extra_args: Mapping[str, str | None]
    runner: Runner | None
    transport: object | None

    cwd: StrPath | None
    add_dirs: Sequence[StrPath]
    project_config_root: StrPath | None
    env: Mapping[str, str]
    env_policy: EnvPolicy | Literal["inherit"] | Sequence[str]
    isolation: Isolation | Literal["inherit", "hermetic"]
    user: str | int | None
    timeouts: Timeouts | Mapping[str, float | None]
    give_up_on: Sequence[int]
    on_auth_refresh: Callable[[], object] | None

    model: str | None
    fallback_model: str | Sequence[str] | None
    betas: Sequence[Beta]
    thinking: (
        AdaptiveThinking
        | EnabledThinking
        | DisabledThinking
        | Literal["adaptive", "enabled", "disabled"]
        | Plain
        | None
    )
    max_thinking_tokens: int | None
    effort: EffortLevel | None
    max_turns: int | None
    max_budget_usd: float | None
    task_budget: int | Mapping[str, int] | None
    output_format: JsonSchemaFormat | Plain | None

    system_prompt: str | Sequence[str] | PresetPrompt | CustomPrompt | FilePrompt | Plain | None
    append_system_prompt: str | None
    append_subagent_system_prompt: str | None
    plan_mode_instructions: str | None
    verbatim_prompts: bool

    tools: Sequence[str | Callable[..., object]] | Literal["default"] | Plain | None
    allowed_tools: Sequence[str | Callable[..., object]]
    disallowed_tools: Sequence[str | Callable[..., object]]
    extra_tools: Sequence[str]
    tool_aliases: Mapping[str, str | Callable[..., object]]
    question_preview_format: Literal["markdown", "html"] | None
    skills: Sequence[str] | Literal["all"] | None
    agents: Mapping[str, AgentDefinition | Plain]
    agent: str | None
    plugins: Sequence[LocalPlugin | StrPath | Plain]
    plugin_delivery: Literal["argv", "initialize"]
    mcp_servers: Mapping[str, McpServer | Plain | object] | StrPath
    strict_mcp_config: bool

    permission_mode: PermissionMode | None
    permission: Callable[[PermissionRequest], object] | None
    on_question: Callable[[Question], object] | None
    on_plan: Callable[[Plan], object] | None
    approvals: Approvals | None
    permission_prompt_tool_name: str | Callable[..., object] | None
    permission_prompts: Literal["host", "none"] | None
    allow_dangerously_skip_permissions: bool
    hooks: Mapping[HookEvent, Sequence[HookFunction]] | Sequence[EventHook]
    on_elicitation: Callable[[ElicitationRequest], object] | None
    on_user_dialog: Callable[[DialogRequest], object] | None
    supported_dialog_kinds: Sequence[str]
    sandbox: Sandbox | Plain | None

    setting_sources: Sequence[SettingSource] | None
    settings: StrPath | Plain | None
    managed_settings: Plain | None
    strict_settings_merge: bool

    continue_conversation: bool
    resume: str | None
    fork_session: bool
    resume_session_at: str | None
    resume_drops_turn: str | None
    session_id: str | None
    title: str | None
    persist_session: bool
    enable_file_checkpointing: bool
    session_store: SessionStore | str | PathLike[str] | None
    session_store_flush: Literal["batched", "eager"]

    include_partial_messages: bool
    include_hook_events: bool
    replay_user_messages: bool
    forward_subagent_text: bool
    forward_nested_subagent_tool_calls: bool
    prompt_suggestions: bool
    agent_progress_summaries: bool
    per_task_stop_affordance: bool
    max_buffer_size: int | None
    stderr: Callable[[str], object] | None
    debug: bool | str
    debug_file: StrPath | None
    client_app: str | None
    trace: Trace | StrPath | Plain | None
    telemetry: Telemetry | Literal[False] | None


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=OptionsMeta):
    """How an agent is run. A value: make changed copies with `replace`, `with_env`, `with_hook`.

    Each option may be given in the forms that `OptionFields` lists, and is kept in the one form that stands
    here. Lists, mappings and parts are copied: what is done to them afterwards changes no options.

    Raises `OptionsError` for what cannot work, and names the option, the value and what to give instead. What
    is on the machine is looked at when the agent is started, not here.
    """

    if TYPE_CHECKING:

        def __init__(self, **fields: Unpack[OptionFields]) -> None: ...

    # Claude Code.

    cli_path: str | None = option(None, path_text, Host("the command"))
    """The path of Claude Code. Unset: Outrider searches for it."""
    bundled_path: str | None = option(None, path_text, Host("the command"))
    """A copy of Claude Code that comes with your application, used before PATH is searched."""
    executable: str | None = option(None, path_text, Host("the command"))
    """What runs Claude Code if it is a script: `node`, `bun`. Unset: it runs by itself."""
    executable_args: tuple[str, ...] = option((), listed(secret_text), Host("the command"))
    """Arguments for `executable`, which must be set. They come before the path of Claude Code."""
    extra_args: Mapping[str, str | None] = option(
        {},
        mapped(checked(is_free_flag, of=any_text), optional(secret_text)),
        Host("the command, after all these"),
    )
    """Further flags for Claude Code, without dashes; None for a flag without a value. Flags that another
    option sets, or that Outrider needs itself, are rejected."""
    runner: Runner | None = option(None, forms.runner, Host("the command"))
    """Where Claude Code runs: over ssh, in a container, under another command. Unset: on this machine."""
    transport: object | None = option(None, thing("a transport"), Host("the session"))
    """Talk over this transport instead of starting Claude Code."""

    # Folders, environment and deadlines.

    cwd: str | None = option(None, path_text, Host("the command"))
    """The working folder of Claude Code. Unset: that of this process."""
    add_dirs: tuple[str, ...] = option((), listed(path_text), Flag("--add-dir"))
    """Further folders that the agent's tools may use."""
    project_config_root: str | None = option(
        None, checked(forms.is_absolute, of=path_text), Flag("--project-config-root", since=(2, 1, 275))
    )
    """The folder whose project configuration is used, as an absolute path. Unset: found from `cwd`."""
    env: Mapping[str, str] = option({}, variables, Host("the environment"))
    """Variables for Claude Code, in addition to those that `env_policy` passes on. `CLAUDE_CONFIG_DIR` is not
    allowed if `isolation` sets that folder."""
    env_policy: EnvPolicy = option(EnvPolicy.INHERIT, forms.env_policy, Host("the environment"))
    """Which variables of this process Claude Code gets. Unset: all, or none in a hermetic run or on another
    machine. A list of names: only those."""
    isolation: Isolation = option(
        Isolation.INHERIT, forms.isolation, Host("the environment and the folders of the command")
    )
    """How much of this machine's configuration Claude Code sees. `"hermetic"`: none, so the API key has to be
    in `env`, or named in `env_policy`. A hermetic run names no `setting_sources`, and can resume only with a
    `config_dir` of its own or a `session_store`."""
    user: str | int | None = option(None, either(str, text, whole(0, forms.LARGEST_UID)), Host("the command"))
    """The user that Claude Code runs as, by name or number. Unset: the user of this process. Not on
    Windows."""
    timeouts: Timeouts = option(Timeouts(), value_of(Timeouts), Host("the session"))
    """Deadlines. Unset: the defaults of `Timeouts`, which make every turn end."""

    give_up_on: tuple[int, ...] = option((401,), listed(whole(100, 599)), Host("the session"))
    """HTTP statuses of the API at which a turn fails at once, instead of Claude Code retrying for minutes."""
    on_auth_refresh: Callable[[], object] | None = option(
        None,
        function,
        Host("the session"),
        Variable("CLAUDE_CODE_OAUTH_401_WAIT_MS", encode.auth_wait, since=(2, 1, 77)),
        # They would be used in place of a token.
        Variable("ANTHROPIC_API_KEY", encode.nothing),
        Variable("ANTHROPIC_AUTH_TOKEN", encode.nothing),
    )
    """Returns an OAuth token (`CLAUDE_CODE_OAUTH_TOKEN`). Called when a session opens, unless `env` has one,
    and when the API rejects the token: the turn continues with the new one. Not with an API key in `env`; one
    that is inherited is left out."""

    # Model.

    model: str | None = option(None, text, Flag("--model"))
    """The name or alias of a model. Unset: the default of Claude Code."""
    fallback_model: tuple[str, ...] | None = option(
        None, forms.fallback_models, Flag("--fallback-model", encode.joined)
    )
    """Models to try, in this order, when `model` is overloaded. It may contain neither `model` nor a model
    twice. Unset: none."""
    # A list with commas is taken for one name, which is then not allowed.
    betas: tuple[Beta, ...] = option(
        (), listed(checked(forms.has_no_comma)), Flag("--betas", since=(2, 0, 58))
    )
    """Beta features of the API to turn on."""
    # With `--max-thinking-tokens` beside it, `--thinking` would win: only one of the two is ever sent.
    thinking: Thinking | None = option(
        None,
        forms.thinking,
        Flag("--thinking", encode.thinking_kind, since=(2, 1, 47)),
        Flag("--thinking-display", encode.thinking_display, since=(2, 1, 94)),
    )
    """Whether and how much the model thinks before it answers; overrides `max_thinking_tokens`. Unset: Claude
    Code decides."""
    max_thinking_tokens: int | None = option(
        None, whole(0), Flag("--max-thinking-tokens", encode.thinking_tokens, ("thinking",), since=(2, 0, 2))
    )
    """The largest number of thinking tokens; 0 turns thinking off. Unset: Claude Code decides."""
    effort: EffortLevel | None = option(None, effort_level, Flag("--effort", since=(2, 1, 38)))
    """How hard the model works on an answer. Unset: Claude Code decides."""
    max_turns: int | None = option(None, whole(1), Flag("--max-turns"))
    """How many times the model may be called for one prompt, at least 1. Unset: no limit."""
    max_budget_usd: float | None = option(
        None, above_zero, Flag("--max-budget-usd", encode.money, since=(2, 0, 30))
    )
    """What the session may cost, in USD, more than 0. Unset: no limit."""
    task_budget: int | None = option(None, forms.task_budget, Flag("--task-budget", since=(2, 1, 84)))
    """The number of tokens the model may plan with for its task, at least 1. Unset: it gets no number."""
    output_format: JsonSchemaFormat | None = option(
        None,
        forms.output_format,
        Init("json_schema", encode.json_schema, since=(2, 0, 50)),
        reserves="json-schema",
    )
    """The form that the final answer must have. Unset: any text."""

    # System prompt and instructions.

    system_prompt: SystemPrompt | None = option(
        None,
        forms.system_prompt,
        Init("system_prompt", encode.system_prompt, _APPENDED, always=True, since=_BY_LIST, optional=True),
        File("--system-prompt-file", encode.prompt_text, _APPENDED, file="system-prompt.txt", until=_BY_LIST),
        Flag("--system-prompt", encode.no_prompt, _APPENDED, always=True, until=_BY_LIST),
        Flag("--system-prompt-file", encode.prompt_file),
        Init("system_prompt_snapshot", encode.prompt_snapshot, since=(2, 1, 257)),
        Init("exclude_dynamic_sections", encode.without_dynamic_sections, since=(2, 1, 97)),
        reserves="system-prompt system-prompt-snapshot exclude-dynamic-system-prompt-sections",
    )
    """A text replaces Claude Code's own system prompt, `PresetPrompt` keeps it, and `FilePrompt` names a file
    that Claude Code reads. Of a list, the texts before `SYSTEM_PROMPT_DYNAMIC_BOUNDARY` can be cached across
    sessions. Unset: empty, or Claude Code's own if `append_system_prompt` is set."""
    append_system_prompt: str | None = option(
        None,
        any_text,
        Init(
            "append_system_prompt",
            encode.appended_prompt,
            ("system_prompt",),
            since=(2, 0, 56),
            optional=True,
        ),
        # On the command line, others can see it. These versions have no other way.
        Flag("--append-system-prompt", encode.appended_prompt, ("system_prompt",), until=(2, 0, 56)),
        reserves="append-system-prompt append-system-prompt-file",
    )
    """Added to the system prompt. Not with `PresetPrompt.append` or a `FilePrompt`."""
    # The field of `initialize` for it is accepted and has no effect.
    append_subagent_system_prompt: str | None = option(
        None,
        any_text,
        File(
            "--append-subagent-system-prompt-file",
            file="append-subagent-system-prompt.txt",
            since=(2, 1, 261),
        ),
        reserves="append-subagent-system-prompt",
    )
    """Added to the system prompt of every subagent."""
    plan_mode_instructions: str | None = option(
        None, any_text, Init("plan_mode_instructions", since=(2, 1, 118)), reserves="plan-mode-instructions"
    )
    """The instructions for plan mode. Unset: those of Claude Code."""
    verbatim_prompts: bool = option(False, switch, Host("the session, in each prompt"))
    """Take prompts as written: no `/command` and no `@file` in them is processed."""

    # Tools, skills, subagents and MCP servers.

    tools: tuple[object, ...] | Literal["default"] | None = option(
        None,
        forms.tools,
        Flag("--tools", encode.tools, since=(2, 0, 31)),
        Host("the session, as an MCP server"),
    )
    """Built-in tools to offer, by name, and tools of your own. An empty list: no built-in tools. Unset, or
    only your own tools: all built-in tools."""
    allowed_tools: tuple[str, ...] = option(
        (),
        listed(forms.rule),
        Flag("--allowedTools", encode.allowed_tools, ("skills",)),
        reserves="allowed-tools",
    )
    """Rules for what may be used without asking: `Read`, `Bash(git *)`, `mcp__server__tool`, or a tool of
    yours by its name. No one is asked about these, not even the `permission` callback."""
    disallowed_tools: tuple[str, ...] = option(
        (), listed(forms.rule), Flag("--disallowedTools", encode.joined), reserves="disallowed-tools"
    )
    """Rules for what may not be used at all."""
    extra_tools: tuple[str, ...] = option(
        (), listed(checked(is_tool_name)), Host("the session, which checks names")
    )
    """Names of tools that the session can have and Outrider does not know, or patterns for them. In rules,
    policies, hook matchers and subagents, a name that is neither known nor listed here is an error."""
    tool_aliases: Mapping[str, str] = option(
        {}, mapped(checked(is_tool_name), forms.tool), Init("tool_aliases", plain, since=(2, 1, 142))
    )
    """Other names by which the model may call tools: `{"Shell": "Bash"}`."""
    question_preview_format: Literal["markdown", "html"] | None = option(
        None, choice("markdown", "html"), Variable("CLAUDE_CODE_QUESTION_PREVIEW_FORMAT", since=(2, 1, 69))
    )
    """The format of previews in the agent's questions. Unset: no previews."""
    # Without setting sources, only the skills of Claude Code and of plugins are found.
    skills: tuple[str, ...] | Literal["all"] | None = option(
        None, forms.skills, Init("skills", encode.skill_names, since=(2, 1, 116))
    )
    """Skills that may be used: all, or those named. Unset: Claude Code decides, and asks. Skills of the user
    and the project are found only if `setting_sources` names these."""
    agents: Mapping[str, AgentDefinition] = option(
        {}, agents_by_name, Init("agents", plain, since=(2, 0, 56)), reserves="agents"
    )
    """Subagents by name."""
    agent: str | None = option(None, text, Flag("--agent", since=(2, 0, 59)))
    """The subagent that runs as the main agent. Unset: Claude Code itself."""
    plugins: tuple[LocalPlugin, ...] = option(
        (),
        listed(forms.plugin),
        Flag("--plugin-dir", encode.plugin_paths, ("plugin_delivery",), since=(2, 0, 25)),
        Flag(
            "--plugin-dir-no-mcp",
            encode.plugin_paths_without_servers,
            ("plugin_delivery",),
            since=(2, 1, 172),
        ),
        Init("plugins", encode.plugins_in_initialize, ("plugin_delivery",), since=(2, 1, 315)),
    )
    """Plugins to load, as folders or .zip files. Other kinds are not known."""
    plugin_delivery: Literal["argv", "initialize"] = option("argv", choice("argv", "initialize"))
    """Whether plugins are named on the command line or in the first request."""
    mcp_servers: Mapping[str, McpServer] | str = option(
        {},
        forms.mcp_servers,
        File("--mcp-config", encode.mcp_config, file="mcp.json"),
        Init("sdk_mcp_servers", encode.sdk_server_names),
        Init("sdk_mcp_server_configs", encode.sdk_server_setups, since=(2, 1, 248)),
    )
    """MCP servers by name, or the path of a file that lists them. A server object of this process stands for
    an `SdkServer`."""
    strict_mcp_config: bool = option(
        False, switch, Flag("--strict-mcp-config", encode.strict_mcp, ("isolation",))
    )
    """Use only the servers of `mcp_servers`, none that the machine or the project configures."""

    # Permissions and hooks.

    permission_mode: PermissionMode | None = option(
        None,
        mode_name,
        Flag("--permission-mode"),
        reserves="dangerously-skip-permissions enable-auto-mode inherit-permission-mode",
    )
    """What Claude Code may do without asking. Unset: `default`, unless its settings say otherwise."""
    permission: Callable[..., object] | None = option(
        None,
        function,
        Host("the session"),
        Flag(
            "--permission-prompt-tool",
            encode.prompt_tool,
            ("on_question", "on_plan", "permission_prompt_tool_name"),
        ),
    )
    """Decides what the agent asks for: a function, or a `Policy`. Not with `permission_prompt_tool_name` or
    `permission_prompts="none"`. Unset: everything it asks for is denied."""
    on_question: Callable[..., object] | None = option(None, function, Host("the session"))
    """Answers the questions that the agent asks the user, one by one. Not with `permission_prompt_tool_name`
    or `permission_prompts="none"`. Unset: `permission` gets them."""
    on_plan: Callable[..., object] | None = option(None, function, Host("the session"))
    """Approves the plans that the agent makes in plan mode, or sends them back. Not with
    `permission_prompt_tool_name` or `permission_prompts="none"`. Unset: `permission` gets them."""
    approvals: Approvals | None = option(None, thing("an `Approvals`"), Host("the session"))
    """Where calls wait for a person: those that a rule of the `permission` policy asks about, those for which
    the `permission` callback returns `ask()`, and questions and plans without a callback. Not with
    `permission_prompt_tool_name` or `permission_prompts="none"`."""
    permission_prompt_tool_name: str | None = option(None, forms.tool)
    """An MCP tool that decides instead of `permission`."""
    permission_prompts: Literal["host", "none"] | None = option(
        None, choice("host", "none"), Flag("--permission-prompts", since=(2, 1, 259))
    )
    """Who is asked: this process, or no one, so that everything that would be asked is denied. Unset: this
    process."""
    allow_dangerously_skip_permissions: bool = option(
        False, switch, Flag("--allow-dangerously-skip-permissions", since=(2, 0, 26))
    )
    """Allow a later change to `bypassPermissions`. Rejected for root outside of a sandbox."""
    hooks: Mapping[str, tuple[object, ...]] = option({}, forms.hooks, Host("the session, in `initialize`"))
    """A list of hooks, or a mapping from events to hooks or plain functions."""
    on_elicitation: Callable[..., object] | None = option(None, function, Host("the session"))
    """Answers what an MCP server asks the user. Unset: it is declined."""
    on_user_dialog: Callable[..., object] | None = option(None, function, Host("the session"))
    """Answers dialogs of Claude Code. Unset: it shows none."""
    supported_dialog_kinds: tuple[str, ...] = option(
        (), listed(text), Init("supported_dialog_kinds", list, since=(2, 1, 169))
    )
    """The kinds of dialog that `on_user_dialog`, which must be set, can answer."""
    sandbox: Sandbox | None = option(None, value_of(Sandbox))
    """How shell commands are confined; replaces `sandbox` in `settings`. Unset: as `settings` say."""

    # Settings.

    setting_sources: tuple[SettingSource, ...] | None = option(
        (),
        optional(listed(choice(*SETTING_SOURCES))),
        Flag("--setting-sources", encode.setting_sources, ("isolation",), always=True),
    )
    """Which settings files of the machine are read: none by default. None: those that Claude Code reads by
    itself."""
    settings: str | JsonObject | None = option(
        None,
        forms.settings,
        File(
            "--settings",
            encode.settings,
            ("sandbox", "strict_settings_merge", "cwd", "runner"),
            file="settings.json",
        ),
    )
    """Settings that take precedence over all files: the path of a file, JSON text, or a mapping."""
    # `--managed-settings` accepts a file, and then it has no effect.
    managed_settings: JsonObject | None = option(
        None,
        json_object,
        Init("managed_settings", plain, since=(2, 1, 323)),
        Flag("--managed-settings-in-initialize", encode.is_given, since=(2, 1, 323)),
        reserves="managed-settings",
    )
    """Settings that nothing can override."""
    strict_settings_merge: bool = option(True, switch)
    """Raise an error if `settings` cannot be read, and so cannot be merged with `sandbox`. If False, they are
    left out with a warning."""

    # Sessions.

    continue_conversation: bool = option(False, switch, Flag("--continue"))
    """Continue the latest session of `cwd`. Not with `resume`."""
    resume: str | None = option(
        None,
        text,
        Flag("--resume"),
        Flag(
            "--await-initialize",
            encode.awaits_initialize,
            ("continue_conversation", "plugins", "plugin_delivery", "managed_settings"),
            since=(2, 1, 261),
            optional=True,
        ),
    )
    """Continue this session, by its id or title. A session that does not exist is an error."""
    fork_session: bool = option(False, switch, Flag("--fork-session"))
    """Continue in a copy, and leave the session unchanged. Needs `resume` or `continue_conversation`."""
    resume_session_at: str | None = option(None, text, Flag("--resume-session-at"))
    """Continue from this message, by its uuid, and forget everything after it. Needs `resume`."""
    resume_drops_turn: str | None = option(None, text, Flag("--resume-drops-turn", since=(2, 1, 223)))
    """The uuid of the prompt whose turn `resume_session_at` forgets. If more would be forgotten, nothing is,
    and the start fails. Needs `resume_session_at`."""
    session_id: str | None = option(None, checked(forms.is_uuid), Flag("--session-id"))
    """The id of the new session, a UUID. With `resume` or `continue_conversation`, only if `fork_session` is
    set. Unset: Claude Code creates one."""
    title: str | None = option(None, text, Init("title", since=(2, 1, 113)), reserves="name")
    """The title of the session. Unset: Claude Code finds one."""
    persist_session: bool = option(
        True, switch, Flag("--no-session-persistence", encode.is_false, since=(2, 0, 64))
    )
    """Keep the session on disk, so that it can be resumed."""
    enable_file_checkpointing: bool = option(
        False, switch, Variable("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", encode.true, since=(2, 0, 44))
    )
    """Keep copies of files before they are changed, for `rewind_files`. Not with `session_store`."""
    session_store: SessionStore | str | PathLike[str] | None = option(
        None,
        forms.session_store,
        Flag("--session-mirror", encode.is_set, since=(2, 1, 97)),
        Host("the session"),
    )
    """Where sessions are kept in addition to the disk, and resumed from: a store, or its URL or path, which
    is opened and closed with the session. Needs `persist_session`."""
    session_store_flush: Literal["batched", "eager"] = option(
        "batched", choice("batched", "eager"), Host("the session")
    )
    """Whether the store gets entries in batches or at once. Either way it has all of them before a result."""

    # Messages, logs and traces.

    include_partial_messages: bool = option(False, switch, Flag("--include-partial-messages"))
    """Yield stream events while the model writes."""
    include_hook_events: bool = option(False, switch, Flag("--include-hook-events", since=(2, 1, 88)))
    """Yield a message for each hook that starts and ends."""
    replay_user_messages: bool = option(False, switch, Flag("--replay-user-messages"))
    """Yield your own messages too, when Claude Code takes them up."""
    forward_subagent_text: bool = option(
        False, switch, Init("forward_subagent_text", since=(2, 1, 119)), reserves="forward-subagent-text"
    )
    """Yield what subagents say and think, not only their tool calls."""
    forward_nested_subagent_tool_calls: bool = option(
        False, switch, Init("forward_nested_subagent_tool_calls", since=(2, 1, 290))
    )
    """Yield tool calls of the subagents of subagents."""
    prompt_suggestions: bool = option(
        False, switch, Init("prompt_suggestions", since=(2, 1, 48)), reserves="prompt-suggestions"
    )
    """Yield a suggestion for your next prompt after each turn."""
    agent_progress_summaries: bool = option(False, switch, Init("agent_progress_summaries", since=(2, 1, 72)))
    """Yield summaries of what subagents are doing."""
    per_task_stop_affordance: bool = option(
        False, switch, Init("per_task_stop_affordance", since=(2, 1, 246))
    )
    """An interrupt does not stop background tasks; you stop them one by one."""
    max_buffer_size: int | None = option(None, forms.buffer_size, Host("the transport"))
    """The largest message, in bytes; a larger one is an error. Unset or 0: a large default, and larger
    messages are skipped."""
    stderr: Callable[[str], object] | None = option(None, function, Host("the transport"))
    """Called with each line that Claude Code writes to stderr. Unset: the last lines are kept for errors."""
    debug: bool | str = option(False, either(str, text, switch), Flag("--debug"))
    """Write the debug log of Claude Code: all of it, or the categories of this filter."""
    debug_file: str | None = option(None, path_text, Flag("--debug-file", since=(2, 1, 20)))
    """Where that log goes."""
    client_app: str | None = option(None, any_text, Variable("CLAUDE_AGENT_SDK_CLIENT_APP", since=(2, 1, 39)))
    """A name for your application, which Claude Code sends with its requests; empty: none."""
    trace: Trace | None = option(None, forms.trace, Host("the session"))
    """Record everything that is sent and received, with times and with secrets hidden, in a file, or in a
    folder with a file for each session. Unset: nothing is recorded."""
    telemetry: Telemetry | Literal[False] | None = option(None, forms.telemetry, Host("the session"))
    """How to record OpenTelemetry spans and metrics. Unset: as `outrider.telemetry.instrument` was told;
    False: not at all."""

    def _check(self, given: Collection[str]) -> None:
        check(self, given)
        warn_of_shadowed_permission(self, given)

    def replace(self, **changes: Unpack[OptionFields]) -> Self:
        """A copy with these options changed, and checked again. `env` and `hooks` are replaced, not added
        to.
        """
        return type(self)(**cast("OptionFields", {**self._given(), **changes}))

    def with_env(self, variables: Mapping[str, str] | None = None, /, **more: str) -> Self:
        """A copy with these variables added to `env`."""
        return self.replace(env={**self.env, **(variables or {}), **more})

    def with_hook(self, event: HookEvent, *hooks: HookFunction) -> Self:
        """A copy with these hooks added to those of an event."""
        all_hooks = {**self.hooks, event: (*self.hooks.get(event, ()), *hooks)}
        return self.replace(hooks=cast("Mapping[HookEvent, tuple[HookFunction, ...]]", all_hooks))

    def _given(self) -> OptionFields:
        """The options that differ from their defaults."""
        return cast("OptionFields", differing(self))

    def __copy__(self) -> Self:
        # A struct's own copy would share its mappings.
        return make_unchecked(type(self), validated(self._given()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({repr_fields(self._given())})"
