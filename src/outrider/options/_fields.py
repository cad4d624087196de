"""Declares the forms in which each option may be given, for type checkers: shorthands and mappings included.

`_table` converts them to the one form that `Options` keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

from outrider.command import Runner
from outrider.options._servers import AgentDefinition, McpServer
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
)
from outrider.wire.choices import Beta, EffortLevel, PermissionMode, SettingSource

if TYPE_CHECKING:
    from outrider.transcripts import SessionStore
    from outrider.wire.hooks import HookEvent
else:
    # One is of a layer above, the other in a module that few need; at run time the hints say no more.
    SessionStore, HookEvent = object, str

StrPath: TypeAlias = str | PathLike[str]

Plain: TypeAlias = Mapping[str, object]
"""A part as a plain mapping, with the keys of the Python fields or those of the agent."""


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

    tools: Sequence[object] | Literal["default"] | Plain | None
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
    permission: Callable[..., object] | None
    on_question: Callable[..., object] | None
    on_plan: Callable[..., object] | None
    permission_prompt_tool_name: str | Callable[..., object] | None
    permission_prompts: Literal["host", "none"] | None
    allow_dangerously_skip_permissions: bool
    hooks: Mapping[HookEvent, Sequence[object]] | Sequence[object]
    on_elicitation: Callable[..., object] | None
    on_user_dialog: Callable[..., object] | None
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
