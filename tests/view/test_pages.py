"""What the pages show."""

from __future__ import annotations

import gzip
import re
import time
from html import unescape
from pathlib import Path

import anyio
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from outrider import Sessions
from outrider.errors import OptionsError
from outrider.transcripts import MemoryStore
from outrider.view import View, app
from tests.cases import every_case
from tests.view.sample import AGENT, INNER, KEY, OTHER, SESSION, Writer, text, touch, use, write
from tests.view.serving import client

RECORDINGS = Path(__file__).parents[1] / "recordings"


def words(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_the_list_has_projects_titles_costs_and_times(view: View) -> None:
    page = client(view).get("/").text
    said = words(page)
    for expected in (
        "Fix checkout totals that are off by a cent",
        "Übersetze die Überschriften",
        "$0.5231",
        "shop",
        "böse-straße",
        "checkout-totals",
    ):
        assert expected in said
    assert page.index(SESSION) < page.index(OTHER)


@every_case(
    "query, found",
    [
        ("q=forêt", OTHER),
        ("q=FORÊT", OTHER),
        ("q=ROUND_HALF_UP", SESSION),
        ("q=deepest", SESSION),
        ("project=/srv/shop", SESSION),
        ("branch=checkout-totals&project=/srv/böse-straße", OTHER),
    ],
)
def test_search_and_filters(view: View, query: str, found: str) -> None:
    page = client(view).get(f"/?{query}").text
    links = set(re.findall(r'class="session[^"]*"[^>]*', page)) and set(
        re.findall(r"/s/([0-9a-f-]{36})", page)
    )
    assert links == {found}


def test_the_list_is_sorted_by_cost_time_and_size(tmp_path: Path) -> None:
    folder = tmp_path / "projects" / "-srv-many"
    folder.mkdir(parents=True)
    # Number, cost, seconds, size.
    for number, cost, long, size in ((1, 0.5, 300, 10), (2, 9.25, 20, 30), (3, None, 40, 2_000)):
        w = Writer(f"00000000-0000-4000-8000-{number:012}", "/srv/many")
        w.prompt("x" * size, 0)
        w.say(text("done"), seconds=long)
        if cost is not None:
            w.note("cost-state", totalCostUSD=cost)
        path = folder / f"{w.session}.jsonl"
        path.write_bytes(w.data())
        touch(path, w.now.timestamp())
    looking = client(app(Sessions(config=tmp_path)))

    def order(query: str) -> list[int]:
        return [int(id) for id in re.findall(r'href="/s/[0-9a-f-]{24}(\d{12})"', looking.get(query).text)]

    assert order("/?sort=cost") == [2, 1, 3]
    assert order("/?sort=time") == [1, 3, 2]
    assert order("/?sort=size") == [3, 2, 1]
    assert order("/?sort=nonsense") == order("/") == [1, 3, 2]
    assert order("/?sort=cost&page=1") == order("/?sort=cost&branch=other") == []
    page = looking.get("/?sort=cost&days=365").text
    assert re.search(r'href="/\?days=365&amp;sort=time"', page)
    assert re.search(r'aria-current="true"[^>]*>cost', page)


def test_a_sorted_list_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "projects" / "-srv-many"
    folder.mkdir(parents=True)
    for number in range(230):
        w = Writer(f"00000000-0000-4000-8000-{number:012}", "/srv/many")
        w.prompt("x" * (number + 1))
        (folder / f"{w.session}.jsonl").write_bytes(w.data())
    looking, seen, address = client(app(Sessions(config=tmp_path))), list[int](), "/?sort=size"
    while address:
        page = looking.get(address).text
        seen += [int(id) for id in re.findall(r'href="/s/[0-9a-f-]{24}(\d{12})"', page)]
        more = re.search(r'<a href="([^"]+)"[^>]*rel="next"', page)
        address = unescape(more[1]) if more else ""
    assert seen == list(reversed(range(230)))


@every_case(
    "query",
    [
        "q=nothing-like-this",
        "branch=other",
        "tag=x",
        "days=1&project=/srv/shop",
        "until=0",
        "until=nonsense&branch=x",
        "days=77&tag=z",
    ],
)
def test_what_matches_nothing_says_so(view: View, query: str) -> None:
    page = client(view).get(f"/?{query}")
    assert page.status_code == 200
    assert "/s/" not in page.text


def test_a_hit_leads_to_its_entry(view: View) -> None:
    looking = client(view)
    address = unescape(re.findall(r'href="(/s/[^"]+uuid=[^"]+)"', looking.get("/?q=ROUND_HALF_UP").text)[0])
    answer = looking.get(address)
    assert answer.status_code == 307
    place = answer.headers["location"]
    page = looking.get(place).text
    assert f'id="{place.partition("#")[2]}"' in page


def test_long_lists_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "projects" / "-srv-many"
    folder.mkdir(parents=True)
    for number in range(230):
        id = f"00000000-0000-4000-8000-{number:012}"
        w = Writer(id, "/srv/many")
        w.prompt(f"Prompt {number}")
        path = folder / f"{id}.jsonl"
        path.write_bytes(w.data())
        touch(path, 1_700_000_000 + number * 60)
    looking, seen, address = client(app(Sessions(config=tmp_path))), list[str](), "/"
    while address:
        page = looking.get(address).text
        seen += re.findall(r'href="/s/([0-9a-f-]{36})"', page)
        more = re.search(r'<a href="([^"]+)"[^>]*rel="next"', page)
        address = unescape(more[1]) if more else ""
    assert seen == [f"00000000-0000-4000-8000-{number:012}" for number in reversed(range(230))]


def test_a_conversation_has_a_view_for_each_kind_of_tool(view: View) -> None:
    page = client(view).get(f"/s/{SESSION}?start=1").text
    said = words(page)
    for expected in (
        "Off by a cent smells of binary floats",
        "38 passed in 4.02s",
        "Compacted at 154,000 tokens (auto)",
        "The API failed with 529: Overloaded · retry 1 of 10 in 1.8 s",
        "Reproduce it in a test",
        "Summary",
    ):
        assert expected in said
    assert '<span class="l" data-n="6">' in page  # Read has the numbers of its lines
    assert 'class="l add" data-n="8" data-s="+"' in page
    assert 'class="l del" data-n="8" data-s="-"' in page
    assert "<mark>ROUND_HALF_UP</mark>" in page
    assert re.search(r'class="chosen"><span[^>]*>●</span><b>Only refunds', page)
    assert '<span class="server">tracker</span>' in page
    assert f'data-rows="/s/{SESSION}/rows?agent={AGENT}&amp;all=1"' in page
    assert "<table>" in page
    assert 'class="call shell failed"' in page


def test_subagents_open_within_each_other(view: View) -> None:
    looking = client(view)
    outer = looking.get(f"/s/{SESSION}/rows?agent={AGENT}&all=1").text
    assert f"agent={INNER}" in outer
    assert f'id="{AGENT}-e' in outer
    assert "<b>Task</b>" in outer
    assert "deepest of the trees" in looking.get(f"/s/{SESSION}?agent={INNER}").text


def test_the_outline_has_turns_figures_and_a_timeline(view: View) -> None:
    page = client(view).get(f"/s/{SESSION}/outline").text
    said = words(page)
    for expected in (
        "cost $0.5231",
        "failed 1",
        "retries 1",
        "claude-opus-5-5",
        "Look for other float sums",
        "1 m 49 s · 10 calls · 41.9k → 3.3k · $0.4182",
    ):
        assert expected in said
    assert {"model", "files", "edits", "shell", "agents", "other"} <= set(
        re.findall(r'<text [^>]*class="lane"[^>]*>(\w+)', page)
    )
    assert 'class="compacted"' in page


def test_the_timeline_shows_how_full_the_context_was(view: View) -> None:
    page = client(view).get(f"/s/{SESSION}/outline").text
    assert "Context, at most 41,912 tokens" in page
    path = re.findall(r'd="(M[^"]+)" class="context"', page)[0]
    assert re.fullmatch(r"M\d+ 31(H\d+V[\d.]+)+H1000V31Z", path)


def test_a_part_of_the_timeline(view: View) -> None:
    looking = client(view)

    def bars(page: str) -> dict[str, str]:
        return dict(re.findall(r'<a href="[^"]+" aria-label="([^"]+)"[^>]*><rect x="([\d.-]+)"', page))

    whole = bars(looking.get(f"/s/{SESSION}/outline").text)
    assert {"Edit, 0.3 s", "Bash, 3.2 s, failed", "mcp__tracker__create_issue, 0.9 s"} <= whole.keys()
    part = looking.get(f"/s/{SESSION}/timeline?from=1500&to=2600").text
    assert 'data-first="15.00" data-last="26.00"' in part
    assert "Bash, 3.2 s, failed" in bars(part)
    assert "Edit, 0.3 s" not in bars(part)
    assert 'id="unzoom"' in part
    for odd in ("from=0&to=0", "from=999999999&to=0", "from=0&to=999999999999"):
        assert looking.get(f"/s/{SESSION}/timeline?{odd}").status_code == 200
    for bad in ("", "from=-1&to=5", "from=x&to=5"):
        assert looking.get(f"/s/{SESSION}/timeline?{bad}").status_code == 400


def test_the_changes_of_a_session_file_by_file(view: View, config: Path) -> None:
    inside = config / "projects" / KEY / SESSION / "subagents"
    w = Writer(agent="a9")
    w.prompt("Change it", 0)
    w.say(use("s1", "Edit", file_path="/srv/shop/src/totals.py", old_string="CENT", new_string="PENNY"))
    w.result("s1", "ok")
    w.say(use("s2", "Write", file_path="/etc/passwd", content="x"))
    w.result("s2", "It may not", error=True)
    w.say(use("s3", "Edit", file_path="/srv/shop/never.py", old_string="a", new_string="b"))
    (inside / "agent-a9.jsonl").write_bytes(w.data())
    looking = client(view)
    page = looking.get(f"/s/{SESSION}/changes").text
    said = words(page)
    assert re.findall(r'<summary><span class="path">([^<]+)', page) == [
        "src/totals.py",
        "tests/test_totals.py",
    ]
    for expected in ("+11 -4 in 2 files", "src/totals.py +4 -4", "tests/test_totals.py new +7 -0"):
        assert expected.replace("-", "\N{MINUS SIGN}") in said
    assert "agent=a9" in page
    links = [unescape(each) for each in re.findall(r'<a href="([^"]+)">in the conversation', page)]
    for link in links:
        address, _, place = link.partition("#")
        assert f'id="{place}"' in looking.get(address).text
    nothing = words(looking.get(f"/s/{OTHER}/changes").text)
    assert "No file was edited" in nothing


@every_case(
    "query, count, expected",
    [
        ("forêt", 0, "Nothing was found"),
        ("DEEPEST", 1, "in the deepest of the trees"),
        ("38 passed", 1, "38 passed in 4.02s"),
        ("<script>", 0, "Nothing was found"),
        ("", 0, "Nothing was found"),
    ],
)
def test_finding_in_a_session(view: View, query: str, count: int, expected: str) -> None:
    looking = client(view)
    page = looking.get(f"/s/{SESSION}/find", params={"q": query}).text
    links = [unescape(each) for each in re.findall(r'<li><a href="([^"]+)"', page)]
    assert (len(links), expected in words(page)) == (count, True)
    for link in links:
        address, _, place = link.partition("#")
        assert f'id="{place}"' in looking.get(address).text


def test_what_the_program_says_is_no_prompt(tmp_path: Path) -> None:
    w = Writer()
    w.prompt("Say what <command-name>this</command-name> is, and <bash-input>that</bash-input>", 0)
    w.prompt(
        "<command-message>x</command-message>\n<command-name>/compact</command-name>\n"
        "<command-args>keep the tests</command-args>"
    )
    w.prompt("<local-command-stdout>\x1b[2mCompacted\x1b[22m</local-command-stdout>")
    w.prompt("<bash-input>ls -l</bash-input>")
    w.prompt("<bash-stdout>a b</bash-stdout><bash-stderr></bash-stderr>")
    w.prompt(
        "<task-notification>\n<task-id>b1</task-id>\n<summary>The build is over</summary>\n"
        "</task-notification>"
    )
    w.prompt([text("[Request interrupted by user for tool use]")])
    folder = tmp_path / "projects" / "-srv-shop"
    folder.mkdir(parents=True)
    (folder / f"{SESSION}.jsonl").write_bytes(w.data())
    looking = client(app(Sessions(config=tmp_path)))
    page = looking.get(f"/s/{SESSION}").text
    rows = re.findall(r'class="row (\w+)".*?<div class="said">(.*?)</article>', page, re.DOTALL)
    assert [(kind, words(said)) for kind, said in rows] == [
        ("prompt", "Say what <command-name>this</command-name> is, and <bash-input>that</bash-input>"),
        ("prompt", "/compact keep the tests"),
        ("note", "Compacted"),
        ("prompt", "! ls -l"),
        ("note", "a b"),
        ("note", "The build is over"),
        ("note", "[Request interrupted by user for tool use]"),
    ]
    assert '<span class="dim">Compacted</span>' in page
    outline = looking.get(f"/s/{SESSION}/outline").text
    assert re.findall(r'class="title">([^<]+)', outline)[1:] == ["/compact keep the tests", "! ls -l"]


@every_case(
    "printed, shown",
    [
        ("\x1b[1;31merror\x1b[0m: <b>", '<span class="bold a1">error</span>: &lt;b&gt;'),
        ("\x1b[32mok\x1b[39m\x1b[41m!\x1b[m.", '<span class="a2">ok</span><span class="g1">!</span>.'),
        (
            "\x1b[38;5;196mred\x1b[38;2;0;0;250mblue",
            '<span class="a9">red</span><span class="a12">blue</span>',
        ),
        ("\x1b[38;5;250mgrey\x1b[38mx", '<span class="a7">grey</span><span class="a7">x</span>'),
        (
            "\x1b[94;4;7mx\x1b[27;24my",
            '<span class="a12 underline inverse">x</span><span class="a12">y</span>',
        ),
        ("10 %\r50 %\rdone\r\nnext", "done\nnext"),
        ("\x1b[2K\x1b]0;title\x07a\x1b[999999;;mb", "ab"),
    ],
)
def test_the_colors_of_a_terminal(printed: str, shown: str) -> None:
    from outrider.view._pages.tools import terminal

    assert terminal(printed) == shown


@every_case(
    "seconds, said",
    [(0, "0 ms"), (0.042, "42 ms"), (0.0996, "0.1 s"), (59.97, "1 m 0 s"), (7300, "2 h 1 m"), (None, "")],
)
def test_how_long_something_took(seconds: float | None, said: str) -> None:
    from outrider.view._pages.markup import lasting

    assert lasting(seconds) == said


def test_pictures_are_served_by_themselves(view: View) -> None:
    looking = client(view)
    page = looking.get(f"/s/{SESSION}").text
    assert "base64" not in page
    address = unescape(re.findall(r'<img src="(/s/[^"]+)"', page)[0])
    answer = looking.get(address)
    assert (answer.headers["content-type"], answer.content[:4]) == ("image/png", b"\x89PNG")


@every_case(
    "form, begins",
    [
        ("html", "<!doctype html>"),
        ("markdown", "# Fix checkout"),
        ("json", '{\n"format": "outrider-session"'),
    ],
)
def test_export_to_one_file(view: View, form: str, begins: str) -> None:
    answer = client(view).get(f"/s/{SESSION}/export?format={form}")
    assert answer.text.startswith(begins)
    assert "deepest of the trees" in answer.text


def test_the_command_that_resumes_it(view: View, config: Path, tmp_path: Path) -> None:
    def commands(view: View, path: str) -> list[str]:
        return [unescape(each) for each in re.findall(r'data-copy="([^"]*)"', client(view).get(path).text)]

    said = f"cd '/srv/böse-straße' && CLAUDE_CONFIG_DIR={config} claude --resume {OTHER}"
    assert commands(view, f"/s/{OTHER}") == [said]
    # A session of a store is continued from there, and a trace or a file that was moved cannot be.
    url = f"sqlite:///{tmp_path}/kept.db"
    anyio.run(Sessions(config=config).copy, OTHER, Sessions(url))
    kept = f"outrider chat --resume {OTHER} --store {url} --cwd '/srv/böse-straße'"
    assert commands(app(url), f"/s/{OTHER}") == [kept]
    moved = (config / "projects" / "-srv-shop" / f"{SESSION}.jsonl").rename(tmp_path / f"{SESSION}.jsonl")
    for each in (moved, RECORDINGS / "11-subagent.jsonl.gz"):
        single = app(each)
        assert commands(single, client(single).get("/").headers["location"]) == []


def test_what_is_at_home_is_resumed_without_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / ".claude")
    page = unescape(client(app(Sessions(config=tmp_path / ".claude"))).get(f"/s/{SESSION}").text)
    assert f"cd /srv/shop && claude --resume {SESSION}" in page


def test_a_huge_text_is_cut_until_it_is_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "projects" / "-srv-shop"
    folder.mkdir(parents=True)
    w = Writer()
    w.prompt("go", 0)
    w.say(text("word " * 200_000 + "the very end"))
    (folder / f"{SESSION}.jsonl").write_bytes(w.data())
    looking = client(app(Sessions(config=tmp_path)))
    page = looking.get(f"/s/{SESSION}").text
    assert len(page) < 40_000
    whole = unescape(re.findall(r'data-full="([^"]+)"', page)[0])
    assert "the very end" in looking.get(whole).text


def test_a_session_that_was_deleted_is_not_there(view: View, config: Path) -> None:
    looking = client(view)
    assert looking.get(f"/s/{SESSION}").status_code == 200
    (config / "projects" / "-srv-shop" / f"{SESSION}.jsonl").unlink()
    for path in ("", "/rows?after=0", "/outline", "/export", "/live?from=0"):
        answer = looking.get(f"/s/{SESSION}{path}")
        assert (answer.status_code, "does not exist" in answer.text) == (404, True), path


def test_a_store(config: Path) -> None:
    store = MemoryStore()
    view = app(store)

    async def fill() -> None:
        disk, kept = Sessions(config=config), Sessions(store)
        await disk.copy(SESSION, kept)

    anyio.run(fill)
    looking = client(view)
    assert SESSION in looking.get("/").text
    page = looking.get(f"/s/{SESSION}?start=1").text
    assert "38 passed in 4.02s" in words(page)
    assert f"agent={AGENT}" in page
    assert "Look for other float sums" in words(looking.get(f"/s/{SESSION}/outline").text)
    assert "deepest" in looking.get("/?q=deepest").text
    assert looking.get(f"/s/{SESSION}/export?format=markdown").text.startswith("# Fix checkout")


def test_a_trace_is_a_conversation(tmp_path: Path) -> None:
    view = app(RECORDINGS / "11-subagent.jsonl.gz")
    looking = client(view)
    place = looking.get("/").headers["location"]
    page = looking.get(f"{place}?start=1").text
    assert 'class="row prompt"' in page
    assert 'class="call agents done"' in page
    assert "Turn ended" in page
    agent = re.findall(r"rows\?agent=([^&\"]+)", page)[0]
    assert 'class="row' in looking.get(f"{place}/rows?agent={agent}&all=1").text


def test_every_recording_can_be_looked_at() -> None:
    for path in sorted(RECORDINGS.glob("*.jsonl.gz")):
        if ".raw." in path.name or b'"dir"' not in gzip.decompress(path.read_bytes())[:2000]:
            continue
        looking = client(app(path))
        place = looking.get("/").headers["location"]
        assert looking.get(f"{place}?start=1").status_code == 200, path.name
        assert looking.get(f"{place}/outline").status_code == 200, path.name


def test_a_single_transcript(tmp_path: Path) -> None:
    path = write(tmp_path / "config")
    moved = path.rename(tmp_path / "somewhere.jsonl")
    looking = client(app(moved))
    place = looking.get("/").headers["location"]
    assert "38 passed" in looking.get(f"{place}?start=1").text
    assert looking.get(f"{place}/export?format=json").status_code == 200


@every_case("name, content", [("nothing", None), ("text.txt", b"hello"), ("empty.jsonl", b"")])
def test_what_is_nothing_to_look_at_is_refused(tmp_path: Path, name: str, content: bytes | None) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OptionsError, match=name):
        app(path)


def test_it_can_be_mounted_in_a_service(config: Path) -> None:
    view = app(Sessions(config=config))
    service = Starlette(routes=[Mount("/agents", view)])
    looking = client(service, is_in=False)
    assert looking.get("/agents/").status_code == 401
    answer = looking.get(f"/agents/?token={view.token}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/agents/")
    assert "Path=/agents/" in answer.headers["set-cookie"]
    for path in ("/agents/", f"/agents/s/{SESSION}", f"/agents/s/{SESSION}/outline"):
        page = looking.get(path)
        assert page.status_code == 200
        for address in re.findall(r'(?:href|src|action|data-rows|data-src|data-full)="(/[^"]*)"', page.text):
            assert address.startswith("/agents/")
    assert looking.get("/agents/static/view.css").status_code == 200


def test_without_a_guard_the_service_decides(config: Path) -> None:
    looking = client(
        app(Sessions(config=config), guard=False, hosts=None), is_in=False, base="http://service.example"
    )
    assert looking.get("/").status_code == 200


def test_sessions_that_run_are_marked(view: View, config: Path) -> None:
    path = config / "projects" / "-srv-shop" / f"{SESSION}.jsonl"
    looking = client(view)
    assert "dot live" not in looking.get("/").text
    touch(path, time.time())
    page = looking.get("/").text
    assert "dot live" in page
    assert '<small class="doing">I&#x27;ll begin with the model.</small>' in page
    w = Writer()
    w.say(use("w1", "Read", file_path="/srv/shop/src/refunds.py"))
    with path.open("ab") as file:
        file.write(w.data())
    touch(path, time.time() - 300)
    assert '<small class="doing">Read src/refunds.py</small>' in looking.get("/").text
    touch(path, time.time() - 3_000)
    assert "dot live" not in looking.get("/").text


def test_a_rewound_conversation_says_so(tmp_path: Path) -> None:
    w = Writer()
    first = w.prompt("one", 0)
    for number in range(60):
        w.say(text(f"answer {number}"))
    w.parent = first["uuid"]
    w.prompt("another way")
    folder = tmp_path / "projects" / "-srv-shop"
    folder.mkdir(parents=True)
    (folder / f"{SESSION}.jsonl").write_bytes(w.data())
    page = client(app(Sessions(config=tmp_path))).get(f"/s/{SESSION}").text
    assert page.count("taken back to an earlier point") == 1


@every_case("backend", ["asyncio", "trio"])
def test_it_runs_on_every_event_loop(config: Path, backend: str) -> None:
    looking = client(app(Sessions(config=config)), backend=backend)
    for path in (
        "/",
        "/?q=forêt",
        f"/s/{SESSION}",
        f"/s/{SESSION}/outline",
        f"/s/{SESSION}/export?format=json",
    ):
        assert looking.get(path).status_code == 200
