"""The frame around all pages: head, navigation, help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outrider._version import __version__
from outrider.view._pages.markup import Child, Markup, h

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_KEYS: Final = (
    ("j  k", "next, previous row"),
    ("n  p", "next, previous prompt"),
    ("o", "open or close what a row has"),
    ("e", "open or close everything"),
    ("g  G", "to the beginning, to the end"),
    ("f", "follow what is new"),
    ("c", "copy the row"),
    ("y", "copy a link to the row"),
    ("r", "copy the command that resumes the session"),
    ("s", "show or hide the outline"),
    ("/", "search"),
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
    links = [
        h(
            "a",
            name,
            h("span", str(waiting), class_="count", aria_label=f"{waiting} waiting") if waiting else None,
            href=f"{root}{address}",
            aria_current="page" if address == current else None,
        )
        for name, address, waiting in tabs
    ]
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
    top = h(
        "header",
        h(
            "a",
            h("img", src=f"{root}/static/icon.svg", alt="", width=22, height=22),
            "Outrider",
            href=f"{root}/",
            class_="brand",
        ),
        h("nav", links, aria_label="Pages"),
        h("span", title, class_="crumb", aria_hidden="true") if kind == "session-page" else None,
        h("span", class_="grow"),
        h("span", "live", class_="live-sign", hidden=True, role="status"),
        h("button", "◐", type="button", id="theme", title="Light or dark (t)", aria_label="Light or dark"),
        h("button", "?", type="button", id="help-button", title="Keys (?)", aria_label="Keys"),
        class_="top",
    )
    rows = [h("div", h("dt", [h("kbd", key) for key in keys.split()]), h("dd", says)) for keys, says in _KEYS]
    help_dialog = h(
        "dialog",
        h("h2", "Keys"),
        h("dl", rows, class_="keys"),
        h(
            "form",
            h("span", f"Outrider {__version__}. Nothing here leaves this machine.", class_="note"),
            h("button", "Close"),
            method="dialog",
        ),
        id="help",
        aria_label="Keys",
    )
    content = h(
        "body",
        h("a", "To the content", href="#main", class_="skip"),
        top,
        list(body),
        help_dialog,
        h("div", id="toast", role="status", aria_live="polite"),
        class_=kind or None,
        data_root=root,
        data_watch=f"{root}{watch}" if watch else None,
    )
    return f"<!doctype html>\n{h('html', head, content, lang='en')}"


def login_page(root: str, problem: str | None) -> str:
    """Asks for the password; if there is none (None), says where the address is."""
    if problem is None:
        inside: list[Child] = [
            h("h1", "Who are you?"),
            h(
                "p",
                "Open the address that ",
                h("code", "outrider view"),
                " printed. It has a token, and is needed once.",
            ),
        ]
    else:
        inside = [
            h("h1", "Outrider"),
            h("p", problem, class_="problem", role="alert") if problem else None,
            h(
                "form",
                h(
                    "label",
                    "Password",
                    h(
                        "input",
                        type="password",
                        name="password",
                        autofocus=True,
                        required=True,
                        autocomplete="current-password",
                    ),
                ),
                h("button", "Enter"),
                method="post",
                action=f"{root}/login",
            ),
        ]
    return page(root, "Enter", h("main", inside, id="main", class_="login"))


def error_page(root: str, title: str, says: str, tabs: Sequence[tuple[str, str, int]] = ()) -> str:
    """Something is not there, or does not work."""
    back = h("p", h("a", "All sessions", href=f"{root}/"))
    return page(
        root, title, h("main", h("h1", title), h("p", says), back, id="main", class_="login"), tabs=tabs
    )


def facts(*items: tuple[str, Child]) -> Markup:
    """Names and values, those that there are."""
    return h(
        "dl", [h("div", h("dt", name), h("dd", value)) for name, value in items if value], class_="facts"
    )


def table(columns: Mapping[str, str], rows: Sequence[Sequence[Child]], *, empty: str = "") -> Markup:
    """Rows under the names of columns, each of which has a class."""
    if not rows:
        return h("p", empty, class_="empty")
    heads = h("tr", [h("th", name, class_=kind or None) for name, kind in columns.items()])
    kinds = list(columns.values())
    body = [
        h("tr", [h("td", cell, class_=kind or None) for cell, kind in zip(row, kinds, strict=True)])
        for row in rows
    ]
    return h("table", h("thead", heads), h("tbody", body), class_="tasks")


def figures(*items: tuple[str, str, str]) -> Markup:
    """Large numbers: what it is, the number, its kind."""
    return h(
        "dl",
        [
            h("div", h("dt", name), h("dd", value), class_=kind or None)
            for name, value, kind in items
            if value
        ],
        class_="figures",
    )
