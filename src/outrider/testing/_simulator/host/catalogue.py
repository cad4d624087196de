"""Owns the lists that the program tells of itself: commands, agents, models, styles and capabilities.

Does not carry any of them out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from outrider.testing._simulator.program.invocation import DEFAULT_MODEL
from outrider.wire import JsonObject

__all__ = [
    "AGENTS",
    "ALIASES",
    "CAPABILITIES",
    "COMMANDS",
    "INITIALIZE_CAPABILITIES",
    "OUTPUT_STYLES",
    "PLUGINS",
    "SKILLS",
    "Model",
    "commands",
    "displayed",
    "model_of",
    "models",
    "resolve",
]


class Model(NamedTuple):
    """A model, with what a million tokens cost."""

    name: str
    input_usd: float
    output_usd: float
    max_output: int = 128_000


# A million tokens of cache cost a tenth of those of input to read, and a quarter more to write.
_MODELS: Final = (
    Model("claude-opus-5-5", 4.0, 20.0),
    Model("claude-sonnet-5-5", 2.0, 10.0),
    Model("claude-haiku-5-5", 0.1, 0.5),
    Model("claude-fable-5-2", 4.0, 20.0),
    Model("claude-opus-5", 5.0, 25.0, 64_000),
    Model("claude-opus-4-8", 5.0, 25.0, 64_000),
)
ALIASES: Final = {
    "default": DEFAULT_MODEL,
    "opus": "claude-opus-5-5",
    "fable": "claude-fable-5-2",
    "sonnet": "claude-sonnet-5-5",
    "haiku": "claude-haiku-5-5",
}


def model_of(name: str) -> Model:
    """What is known of a model; one that is not known costs as much as the default one."""
    return next((model for model in _MODELS if model.name == name), Model(name, 4.0, 20.0, 32_000))


def resolve(name: str | None) -> str:
    """The full name of a model."""
    return DEFAULT_MODEL if name is None else ALIASES.get(name, name)


def displayed(name: str) -> str:
    """A model's name for people: `Opus 5.5`."""
    words = name.removeprefix("claude-").split("-")
    return f"{words[0].capitalize()} {'.'.join(words[1:])}".strip()


def models() -> list[JsonObject]:
    """The models that can be chosen."""
    found: list[JsonObject] = []
    for alias, name in ALIASES.items():
        shown = "Default (recommended)" if alias == "default" else alias.capitalize()
        model: JsonObject = {
            "value": alias,
            "resolvedModel": name,
            "displayName": shown,
            "description": displayed(name),
            "supportsEffort": True,
            "supportedEffortLevels": ["low", "medium", "high", "xhigh", "max"],
            "supportsAdaptiveThinking": True,
        }
        if alias not in ("sonnet", "haiku"):
            model["supportsFastMode"] = True
        found.append(model | {"supportsAutoMode": True, "supportsThinkingOff": False})
    return found


SKILLS: Final = (
    *("deep-research", "dataviz", "update-config", "verify", "debug", "code-review", "simplify", "batch"),
    *("fewer-permission-prompts", "doctor", "loop", "claude-api", "workflow-authoring", "run"),
    *("run-skill-generator", "plugin-authoring"),
)
COMMANDS: Final = {
    "agents": "",
    "auto-mode-setup": "",
    "autocompact": "[auto|<tokens>]",
    "clear": "[name]",
    "color": "",
    "compact": "<instructions>",
    "config": "key=value",
    "output-style": "[style]",
    "context": "",
    "effort": "<level>",
    "fast": "[on|off]",
    "focus": "[on|off]",
    "heapdump": "",
    "init": "",
    "mcp": "",
    "model": "<model>",
    "reload-plugins": "[--force]",
    "reload-skills": "",
    "rename": "[name]",
    "security-review": "",
    "usage": "",
    "insights": "",
    "recap": "",
    "goal": "",
    "list-agents": "",
    "team-onboarding": "",
}
"""Commands, and what each takes."""

_OTHER_NAMES: Final = {
    "clear": ["reset", "new"],
    "config": ["settings"],
    "rename": ["name"],
    "usage": ["cost", "stats"],
}


def commands() -> list[JsonObject]:
    """All that can be called with a slash, skills first."""
    found: list[JsonObject] = [
        {"name": name, "description": f"The skill {name}.", "argumentHint": "", "builtin": True}
        for name in SKILLS
    ]
    for name, hint in COMMANDS.items():
        command: JsonObject = {"name": name, "description": f"/{name}", "argumentHint": hint}
        if name in _OTHER_NAMES:
            command["aliases"] = _OTHER_NAMES[name]
        found.append(command | {"builtin": True})
    return found


AGENTS: Final[dict[str, JsonObject]] = {
    "claude": {"description": "For any task."},
    "Explore": {"description": "Looks for things in files.", "model": "inherit"},
    "general-purpose": {"description": "For tasks of several steps."},
    "Plan": {"description": "Makes plans.", "model": "inherit"},
    "statusline-setup": {"description": "Sets up the status line.", "model": "sonnet"},
}
OUTPUT_STYLES: Final = ("default", "Proactive", "Concise", "Explanatory", "Learning")
PLUGINS: Final = ("cc-plugin-agents-md", "cc-plugin-privacy", "cc-plugin-plugin-authoring")
INITIALIZE_CAPABILITIES: Final = (
    *("ui_surface_v1", "mcp_call_result_not_for_model_v1", "mcp_call_check_permissions_v1"),
    *("voice_call_talk_line_v1", "ui_pane_widget_v1", "reload_plugins_refuse_if_busy_v1"),
)
CAPABILITIES: Final = (
    *("interrupt_receipt_v1", "interrupt_cancel_queued_v1", "interrupt_send_now_v1"),
    *("interrupt_requeue_taken_v1", "msg_lifecycle_v1", "request_marker_lists_v1"),
    *("ask_user_question_unanswered_v1", "lifecycle_wakeup_source_v1", "sdk_mcp_tools_list_changed"),
    *("sdk_mcp_manifests", "mcp_read_resource_v1", "mcp_tool_ui_meta_v1", "ui_surface_v1"),
    *("mcp_call_result_not_for_model_v1", "mcp_call_check_permissions_v1", "voice_call_talk_line_v1"),
    *("withdrawn_files_note_v2", "ui_pane_widget_v1", "reload_plugins_refuse_if_busy_v1"),
)
