"""The list of sessions, what a search finds, and the page around a conversation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

import msgspec

from outrider.redaction import DEFAULT
from outrider.transcripts._values import SessionQuery
from outrider.view._pages.layout import button, entry, facts, field, figures
from outrider.view._pages.markup import Markup, amount, h, lasting, moment, money, size
from outrider.view._pages.timeline import timeline
from outrider.view._pages.tools import counts_element

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from outrider.transcripts import SearchHit, StoredSession
    from outrider.view._pages.conversation import ChangedFile
    from outrider.view._sources.library import Agent, OpenSession, Project
    from outrider.view._sources.outline import Outline, TurnFigures
    from outrider.view._sources.transcript import Window

PAGE: Final = 100
"""Sessions that are listed at once."""
_MOST_TURNS: Final = 1_000
_UNKNOWN: Final = "What commands changed is not in a transcript."
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
    folders = [(each.folder, _name(each.folder), each.count) for each in projects if each.folder]
    links = [
        entry(
            chosen.address(root, project=folder),
            h("span", name),
            h("small", f"{count:,}"),
            is_here=folder == chosen.project,
            title=folder or None,
        )
        for folder, name, count in [("", "All projects", total), *folders]
    ]
    side = h("aside.projects", h("h2", "Projects"), h("ul", links), aria_label="Projects")
    days = [h("option", says, value=value, selected=value == chosen.days) for value, says in _SINCE.items()]
    archived: dict[str, str | bool] = {"value": "1", "checked": bool(chosen.archived)}
    search = {"type": "search", "id": "search", "value": chosen.q}
    kept = (("project", chosen.project), ("sort", chosen.sort))
    form = h(
        "form.filters",
        field("q", "Search in all conversations", **search) if can_search else None,
        h("label", h("span", "Last used"), h("select", days, name="days")),
        field("branch", "Branch", value=chosen.branch),
        field("tag", "Tag", value=chosen.tag),
        h("label.check", h("input", type="checkbox", name="archived", **archived), "archived"),
        [h("input", type="hidden", name=name, value=value) for name, value in kept if value],
        h("button", "Search"),
        method="get",
        action=f"{root}/",
        role="search",
    )
    heading = h("h1", _name(chosen.project) if chosen.project else "Sessions")
    main = h(
        "main#main", heading, h("p.note.path", chosen.project or place), form, h("div#live.list", region)
    )
    return [h("div.columns", side, main) if projects else h("div.single", main)]


def _name(folder: str | None) -> str:
    return PurePath(folder).name or folder if folder else ""


def list_rows(
    root: str,
    chosen: Filter,
    infos: Sequence[StoredSession],
    costs: Mapping[str, float],
    running: Mapping[str, str],
    *,
    has_more: bool,
) -> Markup:
    """The sessions, by day; with what those do that are running."""
    now = datetime.now(UTC)
    made = [_heads(root, chosen)] if infos else []
    day = ""
    for info in infos:
        this = day if chosen.sort else _day(info.last_modified, now)
        if this != day:
            day = this
            made.append(h("h2.day", day))
        cost, does = costs.get(info.id), running.get(info.id)
        made.append(_session_row(root, info, cost, does, with_project=not chosen.project))
    if not infos and msgspec.structs.replace(chosen, sort="") != Filter():
        show_all = h("p", h("a", "Show all", href=f"{root}/"))
        made.append(h("div.empty", h("b", "No session matches"), show_all))
    elif not infos:
        hint = h("p", "They appear here as soon as Claude Code runs.")
        made.append(h("div.empty", h("b", "No sessions yet"), hint))
    if has_more and infos:
        after = f"{infos[-1].last_modified.timestamp() - 0.000001:.6f}"
        cursor = {"page": str(chosen.first // PAGE + 1)} if chosen.sort else {"until": after}
        says = "More sessions" if chosen.sort else "Earlier sessions"
        made.append(h("a.more", says, href=chosen.address(root, **cursor), rel="next"))
    return Markup("".join(made))


def _heads(root: str, chosen: Filter) -> Markup:
    """What the columns are, and a way to sort by each."""

    def head(sort: str, name: str, says: str) -> Markup:
        here = "true" if chosen.sort == sort else None
        return h("a.num", name, href=chosen.address(root, sort=sort), title=says, aria_current=here)

    return h("nav.heads", [head(*each) for each in _SORTS], aria_label="Sort by")


def _day(when: datetime, now: datetime) -> str:
    days = (now.date() - when.date()).days
    if days <= 0:
        return "Today"
    if days == 1:
        return "Yesterday"
    if days < 7:
        return f"{when:%A}"
    return f"{when:%B %Y}" if when.year != now.year or days > 31 else f"{when:%d %B}".lstrip("0")


def _session_row(
    root: str, info: StoredSession, cost: float | None, does: str | None, *, with_project: bool
) -> Markup:
    long = took(info)
    lasted = lasting(long) if long and long >= 1 else ""
    prompt = info.first_prompt if info.first_prompt and info.first_prompt != info.title else ""
    parts = [
        h("span.project", _name(info.cwd), title=info.cwd) if with_project and info.cwd else None,
        h("span.branch", info.git_branch) if info.git_branch and info.git_branch != "HEAD" else None,
        h("span.tag", f"#{info.tag}") if info.tag else None,
        h("span.badge", "archived") if info.is_archived else None,
    ]
    return h(
        "a.session",
        h("span.dot.live", title="running") if does is not None else None,
        h(
            "span.what",
            h("b", DEFAULT.mask(info.title) or "(no title)"),
            h("small.doing", does) if does else h("small.first", DEFAULT.mask(prompt)) if prompt else None,
            h("small.parts", parts),
        ),
        h("span.num.cost", money(cost) if cost else "", title="cost"),
        h("span.num.long", lasted, title="from its beginning to its end"),
        h("span.num.size", size(info.size), title="size"),
        h("span.num", moment(info.last_modified)),
        href=f"{root}/s/{info.id}",
        data_nav=True,
    )


def hit_row(root: str, hit: SearchHit, words: str, *, is_again: bool) -> Markup:
    """Something that a search found; `is_again` in the session of the one before it."""
    session = hit.session
    agent = f"&agent={quote(hit.agent_id)}" if hit.agent_id else ""
    about = h("small", _name(session.cwd), " · ", moment(session.last_modified))
    title = None if is_again else h("b", DEFAULT.mask(session.title), about)
    said = h("small.excerpt", _excerpt(hit.excerpt, words, is_agent=bool(agent)))
    address = f"{root}/s/{session.id}?uuid={quote(hit.entry.uuid or '')}{agent}"
    kind = "a.session.hit.again" if is_again else "a.session.hit"
    return h(kind, h("span.what", title, said), href=address, data_nav=True)


def found_list(base: str, hits: Sequence[tuple[int, str, str]], words: str, most: int) -> Markup:
    """What was found in one session: offsets, subagents and excerpts."""
    items = [
        entry(f"{base}?at={at}{agent}#e{at}", _excerpt(said, words, is_agent=bool(agent)))
        for at, agent, said in hits
    ]
    count = f"the first {most:,} are shown" if len(hits) == most else f"{len(hits):,} found"
    return Markup(h("h2", count if hits else "Nothing was found") + h("ol.found", items))


def _excerpt(said: str, words: str, *, is_agent: bool) -> list[Markup]:
    said = DEFAULT.mask(said)
    place = said.casefold().find(words.casefold())
    end = place + len(words)
    mark = h("span.badge", "subagent") if is_agent else Markup("")
    if place < 0:
        return [mark, h("span", said)]
    return [mark, h("span", said[:place]), h("mark", said[place:end]), h("span", said[end:])]


# One session.


def session_head(
    root: str, opened: OpenSession, agent: Agent | None, resume: str | None, *actions: Markup, current: str
) -> Markup:
    """What it is, its pages, and what can be done with it."""
    info = opened.info
    base = f"{root}/s/{info.id}"
    title = DEFAULT.mask(info.title) or f"Session {info.id[:8]}"
    if agent is not None:
        title = DEFAULT.mask(agent.description) or f"Subagent {agent.id}"
    exports = [
        h("a", name, href=f"{base}/export?format={form}", download=True)
        for name, form in (("HTML page", "html"), ("Markdown", "markdown"), ("JSON", "json"))
    ]
    tabs = [
        h("a", name, href=href, aria_current="page" if name == current else None)
        for name, href in (("Conversation", base), ("Changes", f"{base}/changes"))
    ]
    return h(
        "div.session-head",
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
        h("div.loading", id="figures") if current == "Conversation" else None,
        h(
            "div.actions",
            h("nav.tabs", tabs, aria_label="Of this session"),
            h("span.grow"),
            list(actions),
            button("Copy resume command", id="resume", data_copy=resume, title=resume) if resume else None,
            h("details.dropdown", h("summary", "Export"), h("div.menu", exports)) if agent is None else None,
        ),
    )


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
    base = f"{root}/s/{opened.info.id}"
    query = f"&agent={quote(agent.id)}" if agent else ""
    pressed = "true" if is_live else "false"
    follow = button("Follow", id="follow", aria_pressed=pressed, title="Follow what is new (f)")
    side = button("Outline", id="side", aria_controls="outline", title="Show or hide the outline (s)")
    end = "The end. What is new appears here." if is_live else "The end."
    talk = h(
        "div#talk",
        window_element(window, rows),
        h("div#partial.row.claude.partial", hidden=True),
        h("p#end", end, hidden=not window.is_last),
        data_base=base,
        data_query=query,
        data_live=is_live,
    )
    outline = h(
        "aside.outline",
        field("find", "Find in this session", type="search", id="find"),
        h("div#found", hidden=True, aria_live="polite"),
        h("div#outline", h("p.note", "Reading …"), data_src=f"{base}/outline?{query.removeprefix('&')}"),
        aria_label="Outline",
    )
    main = h(
        "main#main",
        session_head(root, opened, agent, resume, follow, side, current="Conversation"),
        h("div#timeline.loading"),
        h("div.edge", button("Earlier", id="earlier", class_="more"), hidden=window.is_first),
        talk,
        h("div.edge", button("Later", id="later", class_="more"), hidden=window.is_last),
    )
    return [h("div.columns.reading", outline, main)]


def changes_body(
    root: str, opened: OpenSession, files: Sequence[ChangedFile], resume: str | None
) -> list[Markup]:
    """The page of what a session changed."""
    links: list[Markup] = []
    made: list[Markup] = []
    for place, each in enumerate(files):
        path, counts = h("span.path", each.path), counts_element(each.added, each.removed)
        links.append(entry(f"#f{place}", path, counts, title=each.path))
        new = h("span.badge.st-done", "new") if each.is_new else None
        head = h("summary", path, new, h("span.grow"), counts)
        made.append(h("details.file", head, each.edits, id=f"f{place}", open=True))
    count = counts_element(sum(each.added for each in files), sum(each.removed for each in files))
    says = f"{len(files):,} {'file' if len(files) == 1 else 'files'}, edit by edit. {_UNKNOWN}"
    empty = h("div.empty", h("b", "No file was edited"), h("p", _UNKNOWN))
    head = session_head(root, opened, None, resume, current="Changes")
    main = h("main#main", head, h("p.note", count, " in ", says) if files else empty, made)
    side = h("aside.outline", h("h2", "Files"), h("ul.files", links), aria_label="Files")
    return [h("div.columns.reading", side, main)]


def window_element(window: Window, rows: Sequence[Markup]) -> Markup:
    """Some rows, with the cursors to what is before and after."""
    return h(
        "section.window",
        list(rows),
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
    turns = outline.turns[-_MOST_TURNS:]
    items = [_turn_item(turn, base, query) for turn in turns]
    left = len(outline.turns) - len(turns)
    models = h("p.note", ", ".join(outline.models)) if outline.models else None
    drawn = timeline(outline, f"{base}?{query.removeprefix('&')}{'&' if query else ''}at=")
    listed = (
        h("h2", "Turns") if turns else None,
        h("p.note", f"{left:,} earlier ones are not listed.") if left else None,
        h("ol.turns", items, start=left + 1),
    )
    return Markup(
        h("div#new-figures", figures(*numbers), models)
        + h("div#new-timeline", drawn)
        + h("div#new-outline", _agent_tree(base, agents, agent), listed)
    )


def _turn_item(turn: TurnFigures, base: str, query: str) -> Markup:
    stats = [
        lasting(turn.seconds) if turn.seconds else "",
        f"{turn.calls:,} calls" if turn.calls > 1 else "1 call" if turn.calls else "",
        f"{amount(turn.context)} → {amount(turn.output)}" if turn.context else "",
        money(turn.cost_usd),
    ]
    failed = h("span.bad", f"{turn.errors:,} failed") if turn.errors else None
    said = " · ".join(filter(None, stats))
    title = h("span.title", DEFAULT.mask(turn.title))
    address = f"{base}?at={turn.offset}{query}#e{turn.offset}"
    return entry(address, title, h("small", h("span.figures-of", said), failed), data_turn=turn.offset)


def _agent_tree(base: str, agents: Mapping[str, Agent], current: str | None) -> Markup | None:
    if not agents:
        return None
    items = [entry(base, "Main conversation", is_here=current is None)]
    for agent in list(agents.values())[:_MOST_TURNS]:
        title = h("span.title", DEFAULT.mask(agent.description or agent.id))
        address = f"{base}?agent={quote(agent.id)}"
        items.append(entry(address, title, h("small", agent.kind), is_here=agent.id == current))
    return Markup(h("h2", f"Subagents ({len(agents):,})") + h("ul.agents", items))
