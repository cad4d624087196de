"""Renders what an agent wrote as HTML: Markdown, without its HTML, links and pictures, and code with colors.

Whatever comes in, nothing of it becomes an element, an address or a script. Pages are made elsewhere.
"""

from __future__ import annotations

from functools import cache, lru_cache
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore

_LOWER: Final = {f"h{level}": f"h{min(level + 2, 6)}" for level in range(1, 7)}
"""Headings of the agent are below those of the page."""
_MOST_RENDERED: Final = 200_000
_MOST_COLORED: Final = 50_000
"""How long a text and a piece of code may be. Beyond that they are shown as they are."""


def is_installed() -> bool:
    """Whether the packages that render are there."""
    try:
        _markdown()
        import_module("pygments")
    except ImportError:
        return False
    return True


def rendered(text: str) -> str | None:
    """A text of the agent's as HTML; None if it is too long to be read as Markdown."""
    return _markdown().render(text) if len(text) <= _MOST_RENDERED else None


def highlighted(code: str, language: str, _: str = "", *, filename: str = "") -> str:
    """Code as HTML, colored if its language is known, or told by the name of its file."""
    if len(code) > _MOST_COLORED:
        return escape(code)
    lexer = _lexer(language.strip(), filename)
    if lexer is None:
        return escape(code)
    formatter = import_module("pygments.formatters").HtmlFormatter(nowrap=True)
    return str(import_module("pygments").highlight(code, lexer, formatter))


@lru_cache(maxsize=128)
def _lexer(language: str, filename: str) -> Any:  # noqa: ANN401 - pygments has no types
    lexers, util = import_module("pygments.lexers"), import_module("pygments.util")
    try:
        if filename and not language:
            return lexers.get_lexer_for_filename(filename, stripnl=False)
        return lexers.get_lexer_by_name(language, stripnl=False)
    except util.ClassNotFound:
        return None


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "highlight": highlighted})
    made.enable(["table", "strikethrough"])
    # A link may say another address than it leads to, and a picture tells its server who reads this.
    made.disable(["link", "image", "autolink", "reference"])

    def lower(state: StateCore) -> None:
        for token in state.tokens:
            token.tag = _LOWER.get(token.tag, token.tag)

    made.core.ruler.push("lower", lower)
    return made
