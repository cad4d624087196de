"""Describes how Claude Code is run: `Options`, one value, and the values inside it.

Starts nothing and does not look at the machine, except in `check_place`. `outrider.launch` makes a command
from options.
"""

from outrider.options._checks import PermissionShadowedWarning, check_place
from outrider.options._options import OptionFields, Options
from outrider.options._servers import (
    AgentDefinition,
    HttpServer,
    McpServer,
    SdkServer,
    SseServer,
    StdioServer,
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
    OptionValue,
    PresetPrompt,
    Sandbox,
    SandboxFilesystem,
    SandboxNetwork,
    ThinkingDisplay,
    Timeouts,
    Trace,
)

__all__ = [
    "Options",
    "OptionFields",
    "OptionValue",
    "PermissionShadowedWarning",
    "check_place",
    # Where and how it runs.
    "EnvPolicy",
    "Isolation",
    "Timeouts",
    "Trace",
    # What it is told, and how it answers.
    "AdaptiveThinking",
    "CustomPrompt",
    "DisabledThinking",
    "EnabledThinking",
    "FilePrompt",
    "JsonSchemaFormat",
    "PresetPrompt",
    "ThinkingDisplay",
    # What it may use.
    "AgentDefinition",
    "HttpServer",
    "LocalPlugin",
    "McpServer",
    "Sandbox",
    "SandboxFilesystem",
    "SandboxNetwork",
    "SdkServer",
    "SseServer",
    "StdioServer",
]
