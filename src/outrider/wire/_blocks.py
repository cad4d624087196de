"""Defines the content blocks of user and assistant messages.

Does not decode them: `_decoding` picks the class by the block's `type`.
"""

from typing import ClassVar, Final, Literal, TypeAlias

from outrider.wire._value import Json, JsonObject, Value


class TextBlock(Value, tag_field="type", tag="text"):
    """Text, of the model or of the user."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    citations: list[JsonObject] | None = None
    """The passages that the text rests on, where the API names them."""


class ThinkingBlock(Value, tag_field="type", tag="thinking"):
    """The model's thinking, possibly summarised or left empty by the API."""

    type: ClassVar[Literal["thinking"]] = "thinking"
    thinking: str
    signature: str = ""
    """Proves to the API that the thinking is its own; to be sent back unchanged."""


class RedactedThinkingBlock(Value, tag_field="type", tag="redacted_thinking"):
    """Thinking that only the API can read."""

    type: ClassVar[Literal["redacted_thinking"]] = "redacted_thinking"
    data: str


class ToolUseBlock(Value, tag_field="type", tag="tool_use"):
    """The model calls a tool."""

    type: ClassVar[Literal["tool_use"]] = "tool_use"
    id: str
    name: str
    input: JsonObject
    caller: JsonObject | None = None
    """What called the tool, where it was not the model directly."""

    def typed(self) -> Value | JsonObject:
        """The input as a typed value (`BashInput`, `EditInput`, …), or the dict where none fits exactly."""
        from outrider.wire.tools import typed_input

        return typed_input(self.name, self.input)


class ToolResultBlock(Value, tag_field="type", tag="tool_result"):
    """The result of a tool, for the model."""

    type: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_use_id: str
    content: str | list[JsonObject] | None = None
    is_error: bool | None = None

    # Not a `text`: programs take a block that has one for something that the model said.
    def joined_text(self) -> str:
        """The text of the result, all parts joined with nothing."""
        if isinstance(self.content, str):
            return self.content
        parts = [part.get("text") for part in self.content or () if part.get("type") == "text"]
        return "".join(part for part in parts if isinstance(part, str))


class ServerToolUseBlock(Value, tag_field="type", tag="server_tool_use"):
    """The model calls a tool that the API runs itself."""

    type: ClassVar[Literal["server_tool_use"]] = "server_tool_use"
    id: str
    name: str
    input: JsonObject
    caller: JsonObject | None = None


class ServerToolResultBlock(Value, tag_field="type", tag="advisor_tool_result"):
    """The result of a tool that the API runs. Each such tool has a subclass, except the advisor."""

    type: ClassVar[str] = "advisor_tool_result"
    tool_use_id: str
    content: Json
    caller: JsonObject | None = None


class WebSearchToolResultBlock(ServerToolResultBlock, tag="web_search_tool_result"):
    """Results of a web search."""

    type: ClassVar[str] = "web_search_tool_result"


class WebFetchToolResultBlock(ServerToolResultBlock, tag="web_fetch_tool_result"):
    """A fetched page."""

    type: ClassVar[str] = "web_fetch_tool_result"


class CodeExecutionToolResultBlock(ServerToolResultBlock, tag="code_execution_tool_result"):
    """Output of code run by the API."""

    type: ClassVar[str] = "code_execution_tool_result"


class BashCodeExecutionToolResultBlock(ServerToolResultBlock, tag="bash_code_execution_tool_result"):
    """Output of a shell command run by the API."""

    type: ClassVar[str] = "bash_code_execution_tool_result"


class TextEditorCodeExecutionToolResultBlock(
    ServerToolResultBlock, tag="text_editor_code_execution_tool_result"
):
    """Outcome of a file edit made by the API."""

    type: ClassVar[str] = "text_editor_code_execution_tool_result"


class ToolSearchToolResultBlock(ServerToolResultBlock, tag="tool_search_tool_result"):
    """Tools found by a tool search."""

    type: ClassVar[str] = "tool_search_tool_result"


class McpToolUseBlock(Value, tag_field="type", tag="mcp_tool_use"):
    """The model calls a tool of an MCP server that the API talks to."""

    type: ClassVar[Literal["mcp_tool_use"]] = "mcp_tool_use"
    id: str
    name: str
    input: JsonObject
    server_name: str = ""


class McpToolResultBlock(Value, tag_field="type", tag="mcp_tool_result"):
    """The result of a tool of an MCP server that the API talks to."""

    type: ClassVar[Literal["mcp_tool_result"]] = "mcp_tool_result"
    tool_use_id: str
    content: str | list[JsonObject] | None = None
    is_error: bool | None = None


class ImageBlock(Value, tag_field="type", tag="image"):
    """An image: `source` holds base64 data, an address or a file id."""

    type: ClassVar[Literal["image"]] = "image"
    source: JsonObject


class DocumentBlock(Value, tag_field="type", tag="document"):
    """A document: PDF or text, in `source`."""

    type: ClassVar[Literal["document"]] = "document"
    source: JsonObject
    title: str | None = None
    context: str | None = None
    citations: JsonObject | None = None


class SearchResultBlock(Value, tag_field="type", tag="search_result"):
    """A search result that the model may cite."""

    type: ClassVar[Literal["search_result"]] = "search_result"
    source: str
    title: str
    content: list[JsonObject]
    citations: JsonObject | None = None


class ToolReferenceBlock(Value, tag_field="type", tag="tool_reference"):
    """Names a tool whose definition the model may now see."""

    type: ClassVar[Literal["tool_reference"]] = "tool_reference"
    tool_name: str


class ContainerUploadBlock(Value, tag_field="type", tag="container_upload"):
    """A file given to the API's code container."""

    type: ClassVar[Literal["container_upload"]] = "container_upload"
    file_id: str


class CompactionBlock(Value, tag_field="type", tag="compaction"):
    """A summary that the API put in place of earlier turns."""

    type: ClassVar[Literal["compaction"]] = "compaction"
    content: str | None = None


class UnknownBlock(Value):
    """A block of a type that has no class here, or whose fields do not fit its class."""

    type: str
    """The block's type; empty where it has none, or none that is text."""
    raw: Json
    """The block as sent."""


ContentBlock: TypeAlias = (
    TextBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | ToolResultBlock
    | ServerToolUseBlock
    | ServerToolResultBlock
    | WebSearchToolResultBlock
    | WebFetchToolResultBlock
    | CodeExecutionToolResultBlock
    | BashCodeExecutionToolResultBlock
    | TextEditorCodeExecutionToolResultBlock
    | ToolSearchToolResultBlock
    | McpToolUseBlock
    | McpToolResultBlock
    | ImageBlock
    | DocumentBlock
    | SearchResultBlock
    | ToolReferenceBlock
    | ContainerUploadBlock
    | CompactionBlock
    | UnknownBlock
)
"""Any content block."""

TOOL_CALLS: Final = (ToolUseBlock, ServerToolUseBlock, McpToolUseBlock)
"""The blocks that call a tool, wherever that runs."""


BLOCK_TYPES: dict[str, type[Value]] = {
    str(block.__struct_config__.tag): block for block in ContentBlock.__args__ if block is not UnknownBlock
}
"""The class of each known block type."""
