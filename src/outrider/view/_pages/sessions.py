"""The list of sessions, what a search finds, and the page around a conversation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

import msgspec

from outrider.redaction import DEFAULT
from outrider.transcripts._values import SessionQuery
from outrider.view._pages.layout import facts
from outrider.view._pages.markup import Markup, amount, h, lasting, moment, money, size
from outrider.view._pages.timeline import timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from outrider.transcripts import SearchHit, StoredSession
    from outrider.view._sources.library import Agent, OpenSession, Project
    from outrider.view._sources.outline import Outline, TurnFigures
    from outrider.view._sources.transcript import Window

PAGE: Final = 100
"""Sessions that are listed at once."""
_LIVE_SECONDS: Final = 20.0
"""One that was written to so lately counts as running."""
_MOST_TURNS: Final = 1_000
_SORTS: Final = (
    ("cost", "cost", "What cost most first"),
    ("time", "time", "What took longest first: from its first to its last entry"),
    ("size", "size", "The largest first"),
    ("", "last used", "What was used last first"),
)
_SINCE: Final = {"": "any time", "1": "24 hours", "7": "7 days", "30": "30 days", "365": "a year"}


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions are listed: what stands in the address."""

    q: str = ""
    project: str = ""
    branch: str = ""
    tag: str = ""
    days: str = ""
    archived: str = ""
    sort: str = ""
    """What comes first: `cost`, `time`, `size`; else those that were used last."""
    until: str = ""
    """The cursor: those that were used last no later than this."""
    page: str = ""
    """The cursor, if they are sorted otherwise."""

    @classmethod
    def read(cls, params: Mapping[str, str]) -> Filter:
        read = {name: params.get(name, "").strip()[:1000] for name in cls.__struct_fields__}
        known = any(read["sort"] == sort for sort, _, _ in _SORTS)
        return cls(**read if known else {**read, "sort": ""})

    def query(self, limit: int | None) -> SessionQuery:
        until = None
        if self.until:
            try:
                until = datetime.fromtimestamp(float(self.until), UTC)
            except (ValueError, OverflowError, OSError):
                until = None
        days = int(self.days) if self.days in _SINCE and self.days else None
        since = None if days is None else datetime.now(UTC) - timedelta(days=days)
        if since is not None and until is not None:
            until = max(since, until)
        return SessionQuery(
            project=self.project or None,
            branch=self.branch or None,
            tag=self.tag or None,
            since=since,
            until=until,
            archived=None if self.archived else False,
            worktrees=False,
            limit=limit,
        )

    def address(self, root: str, **changes: str) -> str:
        fields = {**msgspec.structs.asdict(self), "until": "", "page": "", **changes}
        told = urlencode({name: value for name, value in fields.items() if value})
        return f"{root}/{'?' if told else ''}{told}"

    @property
    def first(self) -> int:
        """How many come before those of this page, if they are sorted."""
        return int(self.page) * PAGE if self.page.isdigit() and len(self.page) < 6 else 0

    def sorted(self, infos: Sequence[StoredSession], costs: Mapping[str, float]) -> list[StoredSession]:
        """What has most of it first."""
        worth: dict[str, Callable[[StoredSession], float]] = {
            "cost": lambda info: costs.get(info.id, -1.0),
            "time": lambda info: took(info) or -1.0,
            "size": lambda info: info.size or 0,
        }
        return sorted(infos, key=worth[self.sort], reverse=True)


def took(info: StoredSession) -> float | None:
    """Seconds from its first to its last entry."""
    return (info.last_modified - info.created_at).total_seconds() if info.created_at else None


# The list.


def list_body(
    root: str, chosen: Filter, region: Markup, projects: Sequence[Project], place: str, *, can_search: bool
) -> list[Markup]:
    """The page: projects at the side, filters, and the region that is renewed."""
    total = sum(project.count for project in projects)
    links = [_project_link(root, chosen, "", "All projects", total)]
    links += [
        _project_link(root, chosen, each.folder or "", _name(each.folder) or each.key, each.count)
        for each in projects
        if each.folder
    ]
    side = (
        h("aside", h("h2", "Projects"), h("ul", links), class_="projects", aria_label="Projects")
        if projects
        else None
    )
    days = [h("option", says, value=value, selected=value == chosen.days) for value, says in _SINCE.items()]
    form = h(
        "form",
        h(
            "input",
            type="search",
            name="q",
            value=chosen.q,
            placeholder="Search in all conversations",
            aria_label="Search",
            id="search",
            autocomplete="off",
        )
        if can_search
        else None,
        h("label", h("span", "Used in"), h("select", days, name="days")),
        h("input", name="branch", value=chosen.branch, placeholder="Branch", aria_label="Branch"),
        h("input", name="tag", value=chosen.tag, placeholder="Tag", aria_label="Tag"),
        h(
            "label",
            h("input", type="checkbox", name="archived", value="1", checked=bool(chosen.archived)),
            "archived",
            class_="check",
        ),
        [
            h("input", type="hidden", name=name, value=value)
            for name, value in (("project", chosen.project), ("sort", chosen.sort))
            if value
        ],
        h("button", "Search"),
        method="get",
        action=f"{root}/",
        class_="filters",
        role="search",
    )
    heading = h("h1", _name(chosen.project) if chosen.project else "Sessions")
    main = h(
        "main",
        heading,
        h("p", chosen.project or place, class_="note path"),
        form,
        h("div", region, id="live", class_="list"),
        id="main",
    )
    return [h("div", side, main, class_="columns" if side else "single")]


def _name(folder: str | None) -> str:
    return PurePath(folder).name or folder if folder else ""


def _project_link(root: str, chosen: Filter, folder: str, name: str, count: int) -> Markup:
    here = "page" if folder == chosen.project else None
    return h(
        "li",
        h(
            "a",
            h("span", name),
            h("small", f"{count:,}"),
            href=chosen.address(root, project=folder),
            aria_current=here,
            title=folder or None,
        ),
    )


def list_rows(
    root: str, chosen: Filter, infos: Sequence[StoredSession], costs: Mapping[str, float], *, has_more: bool
) -> Markup:
    """The sessions, by day."""
    now = datetime.now(UTC)
    made = [_heads(root, chosen)] if infos else []
    day = ""
    for info in infos:
        this = day if chosen.sort else _day(info.last_modified, now)
        if this != day:
            day = this
            made.append(h("h2", day, class_="day"))
        made.append(_session_row(root, info, costs.get(info.id), now, with_project=not chosen.project))
    if not infos:
        is_filtered = msgspec.structs.replace(chosen, sort="") != Filter()
        made.append(
            h(
                "div",
                h("b", "No session matches" if is_filtered else "No sessions yet"),
                h("p", h("a", "Show all", href=f"{root}/"))
                if is_filtered
                else h("p", "They appear here as soon as Claude Code runs."),
                class_="empty",
            )
        )
    if has_more and infos:
        after = f"{infos[-1].last_modified.timestamp() - 0.000001:.6f}"
        cursor = {"page": str(chosen.first // PAGE + 1)} if chosen.sort else {"until": after}
        says = "More sessions" if chosen.sort else "Earlier sessions"
        made.append(h("a", says, href=chosen.address(root, **cursor), class_="more", rel="next"))
    return Markup("".join(made))


def _heads(root: str, chosen: Filter) -> Markup:
    """What the columns are, and a way to sort by each."""
    made = [
        h(
            "a",
            name,
            href=chosen.address(root, sort=sort),
            class_="num",
            title=says,
            aria_current="true" if chosen.sort == sort else None,
        )
        for sort, name, says in _SORTS
    ]
    return h("nav", made, class_="heads", aria_label="Sort by")


def _day(when: datetime, now: datetime) -> str:
    days = (now.date() - when.date()).days
    if days <= 0:
        return "Today"
    if days == 1:
        return "Yesterday"
    return (
        f"{when:%A}"
        if days < 7
        else f"{when:%B %Y}"
        if when.year != now.year or days > 31
        else f"{when:%d %B}".lstrip("0")
    )


def _session_row(
    root: str, info: StoredSession, cost: float | None, now: datetime, *, with_project: bool
) -> Markup:
    is_live = (now - info.last_modified).total_seconds() < _LIVE_SECONDS
    long = took(info)
    prompt = info.first_prompt if info.first_prompt and info.first_prompt != info.title else ""
    parts = [
        h("span", _name(info.cwd), class_="project", title=info.cwd) if with_project and info.cwd else None,
        h("span", info.git_branch, class_="branch")
        if info.git_branch and info.git_branch != "HEAD"
        else None,
        h("span", f"#{info.tag}", class_="tag") if info.tag else None,
        h("span", "archived", class_="badge") if info.is_archived else None,
    ]
    return h(
        "a",
        h("span", class_="dot live", title="being written to") if is_live else None,
        h(
            "span",
            h("b", DEFAULT.mask(info.title) or "(no title)"),
            h("small", DEFAULT.mask(prompt), class_="first") if prompt else None,
            h("small", parts, class_="parts"),
            class_="what",
        ),
        h("span", money(cost) if cost else "", class_="num cost", title="cost"),
        h(
            "span",
            lasting(long) if long and long >= 1 else "",
            class_="num long",
            title="from its beginning to its end",
        ),
        h("span", size(info.size), class_="num size", title="size"),
        h("span", moment(info.last_modified), class_="num"),
        href=f"{root}/s/{info.id}",
        class_="session",
        data_nav=True,
    )


def hit_row(root: str, hit: SearchHit, words: str) -> Markup:
    """Something that a search found."""
    session = hit.session
    agent = f"&agent={quote(hit.agent_id)}" if hit.agent_id else ""
    address = f"{root}/s/{session.id}?uuid={quote(hit.entry.uuid or '')}{agent}"
    excerpt = DEFAULT.mask(hit.excerpt)
    place = excerpt.casefold().find(words.casefold())
    said: list[Markup] = [h("span", excerpt)]
    if place >= 0 and words:
        end = place + len(words)
        said = [h("span", excerpt[:place]), h("mark", excerpt[place:end]), h("span", excerpt[end:])]
    return h(
        "a",
        h(
            "span",
            h("b", DEFAULT.mask(session.title)),
            h("small", said, class_="excerpt"),
            h(
                "small",
                h("span", _name(session.cwd), class_="project"),
                h("span", "subagent", class_="badge") if agent else None,
                class_="parts",
            ),
            class_="what",
        ),
        h("span", moment(session.last_modified), class_="num"),
        href=address,
        class_="session hit",
        data_nav=True,
    )


# One session.


def session_body(
    root: str,
    opened: OpenSession,
    window: Window,
    rows: Sequence[Markup],
    *,
    agent: Agent | None,
    is_live: bool,
    resume: str | None,
) -> list[Markup]:
    """The page around a conversation."""
    info = opened.info
    base = f"{root}/s/{info.id}"
    query = f"&agent={quote(agent.id)}" if agent else ""
    title = DEFAULT.mask(info.title) or f"Session {info.id[:8]}"
    if agent is not None:
        title = agent.description or f"Subagent {agent.id}"
    menu = h(
        "details",
        h("summary", "Export"),
        h(
            "div",
            [
                h("a", name, href=f"{base}/export?format={form}", download=True)
                for name, form in (("HTML page", "html"), ("Markdown", "markdown"), ("JSON", "json"))
            ],
            class_="menu",
        ),
        class_="dropdown",
    )
    head = h(
        "div",
        h("h1", title),
        facts(
            ("Folder", DEFAULT.mask(info.cwd or "")),
            ("Branch", info.git_branch if info.git_branch != "HEAD" else ""),
            ("Tag", info.tag),
            ("Last", moment(info.last_modified)),
            ("Size", size(info.size)),
            ("Session", h("a", info.id[:8], href=base) if agent else h("span", info.id[:8], title=info.id)),
            ("Subagent", " · ".join(filter(None, (agent.kind, agent.id))) if agent else None),
        ),
        h("div", id="figures", class_="loading"),
        h(
            "div",
            h(
                "button",
                "Follow",
                type="button",
                id="follow",
                aria_pressed="true" if is_live else "false",
                title="Follow what is new (f)",
            ),
            h(
                "button",
                "Copy resume command",
                type="button",
                id="resume",
                data_copy=resume,
                title=resume,
            )
            if resume is not None
            else None,
            menu if agent is None else None,
            h(
                "button",
                "Outline",
                type="button",
                id="side",
                aria_controls="outline",
                title="Show or hide the outline (s)",
            ),
            class_="actions",
        ),
        class_="session-head",
    )
    talk = h(
        "div",
        window_element(window, rows),
        h("div", id="partial", class_="row claude partial", hidden=True),
        h(
            "p",
            "The end. What is new appears here." if is_live else "The end.",
            id="end",
            hidden=not window.is_last,
        ),
        id="talk",
        data_base=base,
        data_query=query,
        data_live=is_live,
    )
    side = h(
        "aside",
        h(
            "div",
            h("p", "Reading …", class_="note"),
            id="outline",
            data_src=f"{base}/outline?{query.removeprefix('&')}",
        ),
        class_="outline",
        aria_label="Outline",
    )
    main = h(
        "main",
        head,
        h("div", id="timeline", class_="loading"),
        h(
            "div",
            h("button", "Earlier", type="button", id="earlier", class_="more"),
            hidden=window.is_first,
            class_="edge",
        ),
        talk,
        h(
            "div",
            h("button", "Later", type="button", id="later", class_="more"),
            hidden=window.is_last,
            class_="edge",
        ),
        id="main",
    )
    return [h("div", side, main, class_="columns reading")]


def window_element(window: Window, rows: Sequence[Markup]) -> Markup:
    """Some rows, with the cursors to what is before and after."""
    return h(
        "section",
        list(rows),
        class_="window",
        data_start=window.start,
        data_end=window.end,
        data_first=window.is_first,
        data_last=window.is_last,
    )


def outline_parts(
    root: str, opened: OpenSession, outline: Outline, agents: Mapping[str, Agent], agent: str | None
) -> Markup:
    """What is read in the background: the figures, the timeline, and the list of turns."""
    base = f"{root}/s/{opened.info.id}"
    query = f"&agent={quote(agent)}" if agent else ""
    took = None if outline.began is None or outline.ended is None else outline.ended - outline.began
    cached = outline.cached / (outline.cached + outline.input) if outline.cached else 0.0
    numbers = [
        ("cost", money(outline.cost_usd), ""),
        ("turns", f"{len(outline.turns):,}", ""),
        ("calls", f"{outline.calls:,}", ""),
        ("failed", f"{outline.errors:,}" if outline.errors else "", "bad"),
        ("retries", f"{outline.retries:,}" if outline.retries else "", "warn"),
        ("tokens in", amount(outline.input + outline.cached), ""),
        ("cached", f"{int(cached * 100)}%" if outline.cached else "", ""),
        ("tokens out", amount(outline.output), ""),
        ("context", amount(outline.context) if outline.context else "", ""),
        ("time", lasting(took), ""),
        ("entries", f"{outline.entries:,}" if outline.entries >= 1_000 else "", ""),
    ]
    shown = [
        h("div", h("dt", name), h("dd", value), class_=kind or None) for name, value, kind in numbers if value
    ]
    turns = outline.turns[-_MOST_TURNS:]
    items = [_turn_item(turn, base, query) for turn in turns]
    left = len(outline.turns) - len(turns)
    return Markup(
        h(
            "div",
            h("dl", shown, class_="figures"),
            h("p", ", ".join(outline.models), class_="note") if outline.models else None,
            id="new-figures",
        )
        + h(
            "div",
            timeline(outline, f"{base}?{query.removeprefix('&')}{'&' if query else ''}at="),
            id="new-timeline",
        )
        + h(
            "div",
            _agent_tree(base, agents, agent),
            h("h2", "Turns") if turns else None,
            h("p", f"{left:,} earlier ones are not listed.", class_="note") if left else None,
            h("ol", items, class_="turns", start=left + 1),
            id="new-outline",
        )
    )


def _turn_item(turn: TurnFigures, base: str, query: str) -> Markup:
    stats = [
        lasting(turn.seconds) if turn.seconds else "",
        f"{turn.calls:,} calls" if turn.calls > 1 else "1 call" if turn.calls else "",
        f"{amount(turn.context)} → {amount(turn.output)}" if turn.context else "",
        money(turn.cost_usd),
    ]
    failed = h("span", f"{turn.errors:,} failed", class_="bad") if turn.errors else None
    said = " · ".join(filter(None, stats))
    return h(
        "li",
        h(
            "a",
            h("span", DEFAULT.mask(turn.title), class_="title"),
            h("small", h("span", said, class_="figures-of"), failed),
            href=f"{base}?at={turn.offset}{query}#e{turn.offset}",
            data_turn=turn.offset,
        ),
    )


def _agent_tree(base: str, agents: Mapping[str, Agent], current: str | None) -> Markup | None:
    if not agents:
        return None
    items = [
        h(
            "li",
            h(
                "a",
                h("span", DEFAULT.mask(agent.description or agent.id), class_="title"),
                h("small", agent.kind),
                href=f"{base}?agent={quote(agent.id)}",
                aria_current="page" if agent.id == current else None,
            ),
        )
        for agent in list(agents.values())[:_MOST_TURNS]
    ]
    whole = h("li", h("a", "Main conversation", href=base, aria_current="page" if current is None else None))
    return Markup(h("h2", f"Subagents ({len(agents):,})") + h("ul", whole, items, class_="agents"))
