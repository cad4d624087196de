"""The frame around all pages: head, navigation, help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outrider._version import __version__
from outrider.view._pages.markup import Attribute, Child, Markup, h

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_KEYS: Final = (
    ("j  k", "next, previous row"),
    ("n  p", "next, previous prompt"),
    ("o", "open or close what a row has"),
    ("e", "open or close everything"),
    ("g  G", "to the beginning, to the end"),
    ("f", "follow what is new"),
    ("x  X", "next, previous failure"),
    ("c", "copy the row, or the code"),
    ("y", "copy a link to the row"),
    ("r", "copy the command that resumes the session"),
    ("d", "changes, and back"),
    ("s", "show or hide the outline"),
    ("/", "find, or search"),
    ("u", "back to the list"),
    ("t", "light, dark, as the system has it"),
    ("?", "this help"),
)


def page(
    root: str,
    title: str,
    *body: Child,
    tabs: Sequence[tuple[str, str, int]] = (),
    current: str = "",
    kind: str = "",
    watch: str = "",
) -> str:
    """A whole page. `tabs` are names, addresses and how much waits there."""
    links: list[Markup] = []
    for name, address, waiting in tabs:
        count = h("span.count", str(waiting), aria_label=f"{waiting} waiting") if waiting else None
        here = "page" if address == current else None
        links.append(h("a", name, count, href=f"{root}{address}", aria_current=here))
    head = h(
        "head",
        h("meta", charset="utf-8"),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", name="color-scheme", content="light dark"),
        h("title", f"{title} · Outrider"),
        h("link", rel="icon", href=f"{root}/static/icon.svg", type="image/svg+xml"),
        h("link", rel="stylesheet", href=f"{root}/static/view.css"),
        h("script", src=f"{root}/static/view.js", type="module"),
    )
    icon = h("img", src=f"{root}/static/icon.svg", alt="", width=22, height=22)
    crumb = h("span.crumb", title, title="To this prompt", aria_hidden="true")
    top = h(
        "header.top",
        h("a.brand", icon, "Outrider", href=f"{root}/"),
        h("nav", links, aria_label="Pages"),
        crumb if kind == "session-page" else None,
        h("span.grow"),
        h("span.live-sign", "live", hidden=True, role="status"),
        button("◐", id="theme", title="Light or dark (t)", aria_label="Light or dark"),
        button("?", id="help-button", title="Keys (?)", aria_label="Keys"),
    )
    rows = [h("div", h("dt", [h("kbd", key) for key in keys.split()]), h("dd", says)) for keys, says in _KEYS]
    note = h("span.note", f"Outrider {__version__}. Nothing here leaves this machine.")
    close = h("form", note, h("button", "Close"), method="dialog")
    help_dialog = h("dialog#help", h("h2", "Keys"), h("dl.keys", rows), close, aria_label="Keys")
    content = h(
        "body",
        h("a.skip", "To the content", href="#main"),
        top,
        list(body),
        help_dialog,
        h("div", id="toast", role="status", aria_live="polite"),
        h("div", id="tip", hidden=True, aria_hidden="true"),
        button("Copy", id="copy-code", hidden=True, tabindex=-1, aria_label="Copy the code"),
        class_=kind or None,
        data_root=root,
        data_watch=f"{root}{watch}" if watch else None,
    )
    return f"<!doctype html>\n{h('html', head, content, lang='en')}"


def login_page(root: str, problem: str | None) -> str:
    """Asks for the password; if there is none (None), says where the address is."""
    heading, says = "Outrider", h("p.problem", problem, role="alert") if problem else None
    form = None
    if problem is None:
        heading, command = "Who are you?", h("code", "outrider view")
        says = h("p", "Open the address that ", command, " printed. It has a token, and is needed once.")
    else:
        kind, saved = "password", "current-password"
        field = h("input", type=kind, name=kind, autofocus=True, required=True, autocomplete=saved)
        label = h("label", "Password", field)
        form = h("form", label, h("button", "Enter"), method="post", action=f"{root}/login")
    return page(root, "Enter", h("main.login", h("h1", heading), says, form, id="main"))


def error_page(root: str, title: str, says: str, tabs: Sequence[tuple[str, str, int]] = ()) -> str:
    """Something is not there, or does not work."""
    back = h("p", h("a", "All sessions", href=f"{root}/"))
    return page(root, title, h("main.login", h("h1", title), h("p", says), back, id="main"), tabs=tabs)


def entry(address: str, *inside: Child, is_here: bool = False, **attributes: Attribute) -> Markup:
    """A link in a list."""
    return h("li", h("a", *inside, href=address, aria_current="page" if is_here else None, **attributes))


def field(name: str, says: str, **attributes: Attribute) -> Markup:
    """Where something is written; what it is for stands in it."""
    return h("input", name=name, placeholder=says, aria_label=says, autocomplete="off", **attributes)


def button(says: str, **attributes: Attribute) -> Markup:
    """One that the script knows."""
    return h("button", says, type="button", **attributes)


def facts(*items: tuple[str, Child]) -> Markup:
    """Names and values, those that there are."""
    return h("dl.facts", [h("div", h("dt", name), h("dd", value)) for name, value in items if value])


def table(columns: Mapping[str, str], rows: Sequence[Sequence[Child]], *, empty: str = "") -> Markup:
    """Rows under the names of columns, each of which has a class."""
    if not rows:
        return h("p.empty", empty)
    heads = h("tr", [h("th", name, class_=kind or None) for name, kind in columns.items()])
    kinds = list(columns.values())
    body = [
        h("tr", [h("td", cell, class_=kind or None) for cell, kind in zip(row, kinds, strict=True)])
        for row in rows
    ]
    return h("table.tasks", h("thead", heads), h("tbody", body))


def figures(*items: tuple[str, str, str]) -> Markup:
    """Large numbers: what it is, the number, its kind."""
    made = [
        h("div", h("dt", name), h("dd", value), class_=kind or None) for name, value, kind in items if value
    ]
    return h("dl.figures", made)
