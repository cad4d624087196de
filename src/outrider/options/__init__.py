"""How an agent is to be run: `Options`, one value, and the parts that it is made of.

Nothing here starts or looks up anything.
"""

from outrider.options._fields import OptionFields
from outrider.options._options import Options
from outrider.options._part import Part
from outrider.options._parts import (
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
    ThinkingDisplay,
    Timeouts,
    Trace,
)
from outrider.options._place import check_place
from outrider.options._sandbox import Sandbox, SandboxFilesystem, SandboxNetwork
from outrider.options._servers import (
    AgentDefinition,
    HttpServer,
    McpServer,
    SdkServer,
    SseServer,
    StdioServer,
)
from outrider.options._validation import PermissionShadowedWarning

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
