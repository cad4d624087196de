"""How an agent is to be run: `Options`, one value, and the parts that it is made of.

Nothing here starts or looks up anything.
"""

from outrider.options._checks import PermissionShadowedWarning, check_place
from outrider.options._fields import OptionFields
from outrider.options._options import Options
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
    Part,
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
    "Part",
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
