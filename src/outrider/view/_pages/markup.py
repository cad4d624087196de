"""Makes HTML of Python values: every text is escaped, and an address leads nowhere but to this server."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from typing import Final, TypeAlias

from outrider._display import plain
from outrider.redaction import DEFAULT
from outrider.transcripts._export.formats import highlighted, rendered

Attribute: TypeAlias = str | int | float | bool | None
_VOID: Final = frozenset(("br", "hr", "img", "input", "link", "meta"))
_ADDRESSES: Final = ("href", "src", "action")


class Markup(str):
    """Text that is markup already. Nothing but this package makes it."""

    __slots__ = ()


Child: TypeAlias = "str | Iterable[Child] | None"


def h(element: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """An element: `p.note` has a class, `div#live` an id. `data_at` is `data-at`; None and False are none."""
    element, *kinds = element.split(".")
    element, _, id = element.partition("#")
    if id:
        attributes = {"id": id, **attributes}
    if kinds:
        attributes["class"] = " ".join(kinds)
    made = [f"<{element}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        if attribute in _ADDRESSES and not str(value).startswith(("/", "?", "#")):
            raise ValueError(f"{attribute} would leave this server: {value!r}")
        made.append(f" {attribute}" if value is True else f' {attribute}="{escape(plain(str(value)))}"')
    made.append(">")
    if element not in _VOID:
        made += [text(*children), f"</{element}>"]
    return Markup("".join(made))


def text(*children: Child) -> Markup:
    """What stands inside an element: markup as it is, everything else escaped."""
    made: list[str] = []
    for child in children:
        if isinstance(child, Markup):
            made.append(child)
        elif isinstance(child, str):
            made.append(escape(plain(child)))
        elif child is not None:
            made += [text(each) for each in child]
    return Markup("".join(made))


def markdown(words: str, *, redact: bool = True) -> Markup:
    """What an agent wrote."""
    words = plain(DEFAULT.mask(words) if redact else words)
    made = rendered(words)
    return h("div.text", words) if made is None else h("div.md", Markup(made))


def code(source: str, *, language: str = "", filename: str = "") -> Markup:
    """Colored code, without an element around it."""
    return Markup(highlighted(plain(source), language, filename=filename))


# Figures.


def money(usd: float | None) -> str:
    """An amount, with as many digits as say something."""
    if usd is None:
        return ""
    return f"${usd:,.2f}" if usd >= 0.995 or usd == 0 else f"${usd:.4f}"


def amount(number: float) -> str:
    """A count, in a few characters: `950`, `12.3k`, `4.1M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            short = number / size
            return f"{short:.0f}{unit}" if short >= 100 else f"{short:.1f}{unit}"
    return f"{number:.0f}"


def size(number: int | None) -> str:
    """Bytes: `3.4 MB`."""
    if number is None:
        return ""
    return f"{amount(number).replace('k', ' k').replace('M', ' M').replace('G', ' G')}B".replace("kB", "KB")


def lasting(seconds: float | None) -> str:
    """A time: `40 ms`, `0.4 s`, `2 m 5 s`, `3 h 20 m`."""
    if seconds is None:
        return ""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} m" if whole < 172800 else f"{whole // 86400:,} days"


def moment(when: datetime | float | None, *, short: bool = False) -> Markup:
    """A time as the reader's clock has it: the script says it in local time."""
    if when is None:
        return Markup("")
    if not isinstance(when, datetime):
        when = datetime.fromtimestamp(when, UTC)
    said = f"{when:%H:%M:%S}" if short else f"{when:%Y-%m-%d %H:%M} UTC"
    return h("time", said, datetime=when.isoformat(timespec="milliseconds"), data_short=short)
