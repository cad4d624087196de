"""Maps each field of `Options` to where it goes and how it is encoded there, in the order of the arguments.

Long texts and possible secrets go in the `initialize` request or in a file, because every user of a machine
can read arguments. Each row was tried with Claude Code 2.1.325. The mode, the environment and the program are
in `_command`, `_environment` and `_program`.
"""

from __future__ import annotations

from typing import Final

from outrider.launch import _encode as spell
from outrider.launch._encode import Filed, Flag, Host, Init, Row, Variable, carried_settings

ROWS: Final[tuple[Row, ...]] = (
    # What it is told.
    Row(
        ("system_prompt", "append_system_prompt"),
        Init("system_prompt"),
        spell.system_prompt,
        one_shot=Filed("--system-prompt-file", "system-prompt.txt"),
    ),
    Row(("system_prompt",), Flag("--system-prompt-file"), spell.prompt_file),
    Row(
        ("system_prompt", "append_system_prompt"),
        Init("append_system_prompt"),
        spell.appended_prompt,
        one_shot=Filed("--append-system-prompt-file", "append-system-prompt.txt"),
    ),
    Row(
        ("system_prompt",),
        Init("system_prompt_snapshot"),
        spell.prompt_snapshot,
        one_shot=Flag("--system-prompt-snapshot", words=("on", "off")),
    ),
    Row(
        ("system_prompt",),
        Init("exclude_dynamic_sections"),
        spell.without_dynamic_sections,
        one_shot=Flag("--exclude-dynamic-system-prompt-sections"),
    ),
    # The field `appendSubagentSystemPrompt` of `initialize` is accepted and has no effect.
    Row(
        ("append_subagent_system_prompt",),
        Filed("--append-subagent-system-prompt-file", "append-subagent-system-prompt.txt"),
        spell.text,
    ),
    Row(("plan_mode_instructions",), Init("plan_mode_instructions"), spell.text, one_shot=None),
    Row(("verbatim_prompts",), Host("the session, in each prompt"), spell.given, one_shot=None),
    # What it may use.
    Row(("tools",), Flag("--tools"), spell.tools),
    Row(("tools",), Host("the session, as an MCP server"), spell.own_tools, one_shot=None),
    Row(("allowed_tools", "skills"), Flag("--allowedTools"), spell.allowed_tools),
    Row(("disallowed_tools",), Flag("--disallowedTools"), spell.joined),
    Row(("extra_tools",), Host("the session, which checks names"), spell.given),
    Row(("tool_aliases",), Init("tool_aliases"), spell.mapping, one_shot=None),
    Row(("question_preview_format",), Variable("CLAUDE_CODE_QUESTION_PREVIEW_FORMAT"), spell.text),
    # Settings sources stay as they are: without any, only the skills of the program and of plugins are found.
    Row(("skills",), Init("skills"), spell.skill_names, one_shot=None),
    Row(("agents",), Init("agents"), spell.mapping, one_shot=Filed("--agents", "agents.json")),
    Row(("agent",), Flag("--agent"), spell.text),
    Row(("plugins", "plugin_delivery"), Flag("--plugin-dir"), spell.plugin_paths(with_servers=True)),
    Row(("plugins", "plugin_delivery"), Flag("--plugin-dir-no-mcp"), spell.plugin_paths(with_servers=False)),
    Row(("plugins", "plugin_delivery"), Init("plugins"), spell.plugins_in_initialize, one_shot=None),
    Row(("mcp_servers",), Filed("--mcp-config", "mcp.json"), spell.mcp_config),
    Row(("mcp_servers",), Init("sdk_mcp_servers"), spell.sdk_server_names, one_shot=None),
    Row(("mcp_servers",), Init("sdk_mcp_server_configs"), spell.sdk_server_setups, one_shot=None),
    Row(("strict_mcp_config", "isolation"), Flag("--strict-mcp-config"), spell.strict_mcp),
    # The model.
    Row(("model",), Flag("--model"), spell.text),
    Row(("fallback_model",), Flag("--fallback-model"), spell.joined),
    # A list with commas is taken for one name, which is then not allowed.
    Row(("betas",), Flag("--betas"), spell.listed),
    # With `--max-thinking-tokens` beside it, `--thinking` would win: only one of the two is ever there.
    Row(("thinking",), Flag("--thinking"), spell.thinking_kind),
    Row(("thinking", "max_thinking_tokens"), Flag("--max-thinking-tokens"), spell.thinking_tokens),
    Row(("thinking",), Flag("--thinking-display"), spell.thinking_display),
    Row(("effort",), Flag("--effort"), spell.text),
    Row(("max_turns",), Flag("--max-turns"), spell.text),
    Row(("max_budget_usd",), Flag("--max-budget-usd"), spell.money),
    Row(("task_budget",), Flag("--task-budget"), spell.text),
    Row(("output_format",), Init("json_schema"), spell.json_schema, one_shot=Flag("--json-schema")),
    # What it must ask for.
    Row(("permission_mode",), Flag("--permission-mode"), spell.text),
    Row(
        ("permission_prompt_tool_name", "permission", "on_question", "on_plan"),
        Flag("--permission-prompt-tool"),
        spell.prompt_tool,
    ),
    Row(("permission",), Host("the session"), spell.is_set, one_shot=None),
    Row(("on_question",), Host("the session"), spell.is_set, one_shot=None),
    Row(("on_plan",), Host("the session"), spell.is_set, one_shot=None),
    Row(("permission_prompts",), Flag("--permission-prompts"), spell.text),
    Row(("allow_dangerously_skip_permissions",), Flag("--allow-dangerously-skip-permissions"), spell.given),
    Row(("hooks",), Host("the session, in `initialize`"), spell.given, one_shot=None),
    Row(("on_elicitation",), Host("the session"), spell.is_set, one_shot=None),
    Row(("on_user_dialog",), Host("the session"), spell.is_set, one_shot=None),
    Row(("supported_dialog_kinds",), Init("supported_dialog_kinds"), spell.listed, one_shot=None),
    # Settings.
    Row(("setting_sources", "isolation"), Flag("--setting-sources"), spell.setting_sources),
    Row(
        ("settings", "sandbox", "strict_settings_merge", "cwd", "runner"),
        Filed("--settings", "settings.json"),
        carried_settings,
    ),
    # A file is accepted by `--managed-settings` and has no effect.
    Row(("managed_settings",), Init("managed_settings"), spell.mapping, one_shot=None),
    Row(("managed_settings",), Flag("--managed-settings-in-initialize"), spell.is_given, one_shot=None),
    # Sessions.
    Row(("continue_conversation",), Flag("--continue"), spell.given),
    Row(("resume",), Flag("--resume"), spell.text),
    Row(
        ("resume", "continue_conversation", "plugins", "plugin_delivery", "managed_settings"),
        Flag("--await-initialize"),
        spell.awaits_initialize,
        one_shot=Host("nobody, where there is no such request"),
    ),
    Row(("fork_session",), Flag("--fork-session"), spell.given),
    Row(("resume_session_at",), Flag("--resume-session-at"), spell.text),
    Row(("resume_drops_turn",), Flag("--resume-drops-turn"), spell.text),
    Row(("session_id",), Flag("--session-id"), spell.text),
    Row(("title",), Init("title"), spell.text, one_shot=Flag("--name")),
    Row(("persist_session",), Flag("--no-session-persistence"), spell.is_false),
    Row(
        ("enable_file_checkpointing",),
        Variable("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"),
        spell.only_true,
    ),
    Row(("session_store",), Flag("--session-mirror"), spell.is_set),
    Row(("session_store",), Host("the session"), spell.given),
    Row(("session_store_flush",), Host("the session"), spell.given),
    # What comes back.
    Row(("include_partial_messages",), Flag("--include-partial-messages"), spell.given),
    Row(("include_hook_events",), Flag("--include-hook-events"), spell.given),
    Row(("replay_user_messages",), Flag("--replay-user-messages"), spell.given, one_shot=None),
    Row(
        ("forward_subagent_text",),
        Init("forward_subagent_text"),
        spell.given,
        one_shot=Flag("--forward-subagent-text"),
    ),
    Row(
        ("forward_nested_subagent_tool_calls",),
        Init("forward_nested_subagent_tool_calls"),
        spell.given,
        one_shot=None,
    ),
    Row(
        ("prompt_suggestions",),
        Init("prompt_suggestions"),
        spell.given,
        one_shot=Flag("--prompt-suggestions", words=("true", "false")),
    ),
    Row(("agent_progress_summaries",), Init("agent_progress_summaries"), spell.given, one_shot=None),
    Row(("per_task_stop_affordance",), Init("per_task_stop_affordance"), spell.given, one_shot=None),
    Row(("max_buffer_size",), Host("the transport"), spell.given),
    Row(("stderr",), Host("the transport"), spell.given),
    Row(("trace",), Host("the session"), spell.given),
    Row(("debug",), Flag("--debug"), spell.given),
    Row(("debug_file",), Flag("--debug-file"), spell.text),
    Row(("client_app",), Variable("CLAUDE_AGENT_SDK_CLIENT_APP"), spell.text),
    # Where it runs.
    Row(("cwd",), Host("the command"), spell.given),
    Row(("add_dirs",), Flag("--add-dir"), spell.listed),
    Row(("project_config_root",), Flag("--project-config-root"), spell.text),
    Row(("env",), Host("the environment"), spell.given),
    Row(("env_policy",), Host("the environment"), spell.given),
    Row(("isolation",), Host("the environment and the folders of the command"), spell.given),
    Row(("user",), Host("the command"), spell.given),
    Row(("timeouts",), Host("the session"), spell.given),
    Row(("give_up_on",), Host("the session"), spell.given),
    # The program.
    Row(("cli_path",), Host("the command"), spell.given),
    Row(("bundled_path",), Host("the command"), spell.given),
    Row(("executable",), Host("the command"), spell.given),
    Row(("executable_args",), Host("the command"), spell.given),
    Row(("extra_args",), Host("the command, after all these"), spell.given),
    Row(("runner",), Host("the command"), spell.given),
    Row(("transport",), Host("the session"), spell.given),
)
