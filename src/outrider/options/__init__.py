"""Describes how Claude Code is run: `Options`, one value, and the values inside it."""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.options._checks import PermissionShadowedWarning as PermissionShadowedWarning
    from outrider.options._checks import check_place as check_place
    from outrider.options._forms import AgentDefinition as AgentDefinition
    from outrider.options._forms import HttpServer as HttpServer
    from outrider.options._forms import McpServer as McpServer
    from outrider.options._forms import SdkServer as SdkServer
    from outrider.options._forms import SseServer as SseServer
    from outrider.options._forms import StdioServer as StdioServer
    from outrider.options._options import OptionFields as OptionFields
    from outrider.options._options import Options as Options
    from outrider.options._values import (
        SYSTEM_PROMPT_DYNAMIC_BOUNDARY as SYSTEM_PROMPT_DYNAMIC_BOUNDARY,
    )
    from outrider.options._values import AdaptiveThinking as AdaptiveThinking
    from outrider.options._values import CustomPrompt as CustomPrompt
    from outrider.options._values import DisabledThinking as DisabledThinking
    from outrider.options._values import EnabledThinking as EnabledThinking
    from outrider.options._values import EnvPolicy as EnvPolicy
    from outrider.options._values import FilePrompt as FilePrompt
    from outrider.options._values import Isolation as Isolation
    from outrider.options._values import JsonSchemaFormat as JsonSchemaFormat
    from outrider.options._values import LocalPlugin as LocalPlugin
    from outrider.options._values import OptionValue as OptionValue
    from outrider.options._values import PresetPrompt as PresetPrompt
    from outrider.options._values import Sandbox as Sandbox
    from outrider.options._values import SandboxFilesystem as SandboxFilesystem
    from outrider.options._values import SandboxNetwork as SandboxNetwork
    from outrider.options._values import ThinkingDisplay as ThinkingDisplay
    from outrider.options._values import Timeouts as Timeouts
    from outrider.options._values import Trace as Trace
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
