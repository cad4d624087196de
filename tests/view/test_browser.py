"""The viewer, as somebody sees it in a browser."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import pytest
from playwright.sync_api import Browser, Page, expect

from outrider import Approvals, Sessions, fleet
from outrider.fleet import Journal
from outrider.view import View, app
from tests.fleet.test_report import outcome
from tests.view.sample import AGENT, INNER, KEY, OTHER, SESSION, Writer, text, use
from tests.view.serving import chromium, needs_browser, served
from tests.view.test_guard import write_hostile

pytestmark = needs_browser

# Five seconds by default, which a busy machine takes to load a page.
expect.set_options(timeout=30_000)

UNNAMED = """
[...document.querySelectorAll('a,button,input:not([type=hidden]),select,textarea,img:not([alt]),[role=img]')]
  .filter((each) => each.checkVisibility() && !(each.textContent.trim() || each.ariaLabel || each.title
    || each.alt || each.querySelector('title, img[alt]') || each.labels?.length))
  .map((each) => each.outerHTML)
"""
AXE = Path(__file__).parents[2] / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
"""`make test` puts it there, with npm."""
QUESTION = {"question": "Which?", "header": "x", "options": [{"label": "One", "description": "the first"}]}


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    """One for all of these tests, and gone after them: Playwright keeps an event loop in this thread."""
    with chromium() as started:
        yield started


@contextmanager
def opened(
    browser: Browser, view: View, path: str = "/", problems: list[str] | None = None, **fields: Any
) -> Generator[Page]:
    """A page of a viewer. Nothing may go wrong in it, and nothing may leave this machine."""
    with served(view) as address:
        context = browser.new_context(base_url=address, **fields)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        problems = [] if problems is None else problems
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        page.on(
            "request", lambda asked: None if asked.url.startswith(address) else problems.append(asked.url)
        )
        page.goto(f"/?token={view.token}")
        page.goto(path)
        try:
            yield page
        finally:
            context.close()
        assert problems == []


def until(page: Page, condition: str) -> None:
    """Wait in the page: its policy lets nothing be evaluated by Playwright's own way."""
    page.evaluate(
        "() => new Promise((resolve) => { const look = async () => "
        f"({condition}) ? resolve() : requestAnimationFrame(look); look(); }})"
    )


def run(function: Callable[..., Awaitable[Any]], *arguments: object) -> Any:
    """Call an async function: in a thread, as Playwright has an event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, function, *arguments).result()


def test_from_the_list_to_a_session_and_back_by_keys(browser: Browser, view: View) -> None:
    with opened(browser, view) as page:
        assert "token" not in page.url
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text(
            "Fix checkout totals that are off by a cent"
        )
        expect(page.locator("#figures")).to_contain_text("$0.5231")
        expect(page.locator("svg.timeline")).to_be_visible()
        page.keyboard.press("g")
        page.wait_for_url("**start=1")
        page.keyboard.press("n")
        expect(page.locator(".row.current")).to_have_class("row prompt current")
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("j")
        expect(page.locator(".row.current")).to_contain_text("Grep")
        page.keyboard.press("o")
        expect(page.locator(".row.current details")).to_have_attribute("open", "")
        page.keyboard.press("y")
        link = page.evaluate("navigator.clipboard.readText()")
        at = page.locator(".row.current").get_attribute("data-at")
        assert link.endswith(f"/s/{SESSION}?at={at}#e{at}")
        page.keyboard.press("c")
        expect(page.locator("#toast")).to_have_text("Copied")
        assert "def total" in page.evaluate("navigator.clipboard.readText()")
        page.keyboard.press("r")
        expect(page.locator("#toast")).to_have_text("Copied")
        until(page, "(await navigator.clipboard.readText()).includes(' claude --resume ')")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("u")
        expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")
        expect(page.locator(".live-sign")).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("forêt")
        page.keyboard.press("Enter")
        expect(page.locator(".session mark")).to_have_text("forêt")
        page.goto(link)
        expect(page.locator(f"#e{at}")).to_be_in_viewport()


def test_a_search_leads_into_a_result(browser: Browser, view: View) -> None:
    with opened(browser, view, "/?q=38 passed") as page:
        page.locator(".session.hit").first.click()
        expect(page.locator("pre.out", has_text="38 passed in 4.02s")).to_be_in_viewport()


def test_finding_in_a_session_marks_it_and_leads_there(browser: Browser, view: View) -> None:
    with opened(browser, view, f"/s/{SESSION}?start=1") as page:
        expect(page.locator("#figures .figures")).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("half_a_cent")
        expect(page.locator("#found li")).to_have_count(2)
        expect(page.locator("#outline")).to_be_hidden()
        marked = (
            "[...CSS.highlights.get('found')].map((each) => "
            "each.startContainer.data.slice(each.startOffset, each.endOffset))"
        )
        assert set(page.evaluate(marked)) == {"half_a_cent"}
        page.locator("#found a", has_text="FAILED").click()
        expect(page.locator("pre.out.bad", has_text="test_half_a_cent")).to_be_in_viewport()
        page.locator("#find").press("Escape")
        expect(page.locator("#outline")).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        page.keyboard.type("deepest")
        page.locator("#found a").click()
        page.wait_for_url(f"**agent={INNER}**")
        expect(page.locator(".row.current")).to_contain_text("in the deepest of the trees")
        expect(page.locator("#found li")).to_have_count(1)


def test_a_part_of_the_timeline_is_chosen_by_dragging(browser: Browser, view: View) -> None:
    with opened(browser, view, f"/s/{SESSION}?start=1") as page:
        expect(page.locator(".timeline .place")).to_be_attached()
        box = page.locator(".timeline").bounding_box()
        assert box is not None
        y = box["y"] + 20
        page.mouse.move(box["x"] + box["width"] * 0.2, y)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.3, y, steps=4)
        page.mouse.up()
        expect(page.locator("#unzoom")).to_be_visible()
        first, last = (
            float(page.locator(".timeline").get_attribute(f"data-{name}") or 0) for name in ("first", "last")
        )
        assert 0 < first < last < 60
        bar = page.locator('.timeline a[aria-label^="Bash, 3.2 s"]')
        bar.hover()
        expect(page.locator("#tip")).to_have_text("Bash, 3.2 s, failed")
        bar.click()
        expect(page.locator(".row.current .call.failed")).to_be_in_viewport()
        page.locator("#unzoom").click()
        expect(page.locator("#unzoom")).to_have_count(0)
        expect(page.locator(".timeline")).to_have_attribute("data-first", "0.00")


def test_code_is_copied_by_itself_and_a_change_as_a_patch(browser: Browser, view: View) -> None:
    with opened(browser, view, f"/s/{SESSION}/changes") as page:
        page.locator("pre.diff").first.hover()
        page.locator("#copy-code").click()
        expect(page.locator("#toast")).to_have_text("Code copied")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.startswith(" def total(lines, discount=0):\n")
        assert "\n-    amount = 0.0\n+    amount = Decimal(0)\n" in copied


def test_keys_lead_to_failures_and_to_what_changed(browser: Browser, view: View) -> None:
    with opened(browser, view, f"/s/{SESSION}?start=1") as page:
        page.keyboard.press("x")
        expect(page.locator(".row.current .call.failed")).to_be_in_viewport()
        page.keyboard.press("d")
        page.wait_for_url("**/changes")
        expect(page.locator(".file")).to_have_count(2)
        page.get_by_role("link", name="in the conversation").first.click()
        expect(page.locator(".row.current .call.edits")).to_be_in_viewport()


def test_subagents_open_as_a_tree(browser: Browser, view: View) -> None:
    with opened(browser, view, f"/s/{SESSION}") as page:
        page.locator("summary", has_text="Agent").filter(has_text="Look for other").first.click()
        page.locator("details.agent-tree > summary", has_text="Look for other float sums").click()
        page.locator(".nested summary", has_text="Check refunds").first.click()
        page.locator(".nested details.agent-tree > summary").click()
        expect(page.get_by_text("in the deepest of the trees")).to_be_visible()


def test_what_is_new_appears_while_one_looks(browser: Browser, view: View, config: Path) -> None:
    path = config / "projects" / KEY / f"{SESSION}.jsonl"
    w = Writer()
    w.count = 9_000
    with opened(browser, view, f"/s/{SESSION}") as page:
        expect(page.locator(".live-sign")).to_be_visible()
        expect(page.get_by_text("I'll begin with the model.")).to_be_in_viewport()
        for step in range(6):
            w.prompt(f"Prompt {step}")
            w.say(text("Some words. " * 60), use(f"n{step}", "Bash", command="make"))
            with path.open("ab") as file:
                file.write(w.data())
            w.lines = []
            expect(page.locator(".row", has_text="make").last).to_contain_text("running")
            w.result(f"n{step}", "built")
            with path.open("ab") as file:
                file.write(w.data())
            w.lines = []
            expect(page.locator(".call.shell.done", has_text="make")).to_have_count(step + 1)
        # It has stayed at the end, and shows each row once.
        expect(page.locator(".call.shell", has_text="make").last).to_be_in_viewport()
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((each) => each.id)")
        assert len(ids) == len(set(ids))
        path.unlink()
        expect(page.get_by_text("This session has been deleted.")).to_be_visible()


def test_a_long_session_scrolls_through_all_of_it(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "projects" / KEY
    folder.mkdir(parents=True)
    w = Writer()
    for number in range(700):
        w.prompt(f"Prompt number {number}.", 1)
        w.say(text(f"Answer number {number}."))
    (folder / f"{SESSION}.jsonl").write_bytes(w.data())
    with opened(browser, app(Sessions(config=tmp_path)), f"/s/{SESSION}") as page:
        expect(page.get_by_text("Answer number 699.")).to_be_in_viewport()
        seen: set[int] = set()
        script = (
            "[...document.querySelectorAll('.row.prompt .text')].map((each) => "
            "Number(each.textContent.match(/\\d+/)[0]))"
        )
        for _ in range(400):
            numbers = page.evaluate(script)
            assert numbers == list(range(numbers[0], numbers[-1] + 1))
            assert len(numbers) <= 8 * 80
            seen |= set(numbers)
            if 0 in seen:
                break
            page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
            first = numbers[0]
            until(page, f"({script})[0] < {first}")
        assert seen == set(range(700))
        page.keyboard.press("G")
        expect(page.get_by_text("Answer number 699.")).to_be_in_viewport()


def test_nothing_of_an_agent_runs_or_is_loaded(browser: Browser, tmp_path: Path) -> None:
    write_hostile(tmp_path)
    errors: list[str] = []
    with opened(browser, app(Sessions(config=tmp_path)), f"/s/{SESSION}?start=1", errors) as page:
        page.keyboard.press("e")
        page.locator("details.agent-tree > summary").first.click()
        expect(page.locator(".nested .row").first).to_be_attached()
        expect(page.locator("#figures .figures")).to_be_visible()
        assert page.evaluate("window.pwned") is None
        assert (
            page.evaluate(
                "document.querySelectorAll('main style, main script, main svg:not(.timeline, .timeline svg), "
                "[onerror]').length"
            )
            == 0
        )
        assert errors == []
        # A script in the page would be refused by the policy, whatever puts it there.
        refused = page.evaluate(
            "() => { try { document.body.innerHTML = '<img src=x>'; return 'allowed'; } catch "
            "(error) { return error.name; } }"
        )
        assert refused == "TypeError"
        errors.clear()


PATHS = (
    *("/", "/?q=cent", "/?branch=nowhere", "/fleet", "/approvals", f"/s/{UUID(int=0, version=4)}"),
    *(f"/s/{SESSION}?start=1", f"/s/{SESSION}?agent={AGENT}", f"/s/{OTHER}", f"/s/{SESSION}/changes"),
)
LOOKS = pytest.mark.parametrize(
    "scheme, width, height",
    [("light", 1280, 800), ("dark", 1280, 800), ("light", 390, 844), ("dark", 390, 844)],
)


@contextmanager
def everything(browser: Browser, config: Path, scheme: Any, width: int, height: int) -> Generator[Page]:
    """A viewer that has something on each of its pages."""
    approvals, path = Approvals(config / "approvals.db"), config / "run.db"
    run(approvals.ask, SESSION, "Bash", {"command": "./deploy.sh", "timeout": 5})
    run(approvals.ask, SESSION, "AskUserQuestion", {"questions": [QUESTION]})
    with Journal(path, writing=True) as journal:
        journal.add((number, fleet.Task(id=f"task-{number}", prompt="x")) for number in range(4))
        for number in range(2):
            journal.begin(f"task-{number}", 1, "w", SESSION)
            journal.end(outcome(number, "failed" if number else "done", session_id=SESSION))
        journal.begin("task-2", 1, "w", SESSION)
        view = app(Sessions(config=config), approvals, path, approve=True)
        shape = {"width": width, "height": height}
        problems: list[str] = []
        with opened(
            browser, view, "/", problems, color_scheme=scheme, viewport=shape, reduced_motion="reduce"
        ) as page:
            yield page
            # What is not there is answered so, and the browser tells.
            assert [problem for problem in problems if "404" not in problem] == []
            problems.clear()


def show(page: Page, path: str) -> None:
    """Open a page, and all that is folded in it."""
    page.goto(path)
    expect(page.locator(".loading")).to_have_count(0)
    if "/s/" in path:
        page.keyboard.press("e")


@LOOKS
def test_every_page_fits(browser: Browser, config: Path, scheme: Any, width: int, height: int) -> None:
    with everything(browser, config, scheme, width, height) as page:
        for path in PATHS:
            show(page, path)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            assert page.evaluate(UNNAMED) == [], path
            if folder := os.environ.get("OUTRIDER_SCREENSHOTS"):
                name = re.sub(r"\W+", "-", path).strip("-") or "list"
                page.screenshot(path=Path(folder, f"{name}-{scheme}-{width}.png"))


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: `make test` installs it where npm is there")
@LOOKS
def test_every_page_can_be_used_by_everybody(
    browser: Browser, config: Path, scheme: Any, width: int, height: int
) -> None:
    with everything(browser, config, scheme, width, height) as page:
        for path in [*PATHS, "/?help"]:
            show(page, path)
            if path == "/?help":
                page.keyboard.press("?")
            page.evaluate(AXE.read_text())
            # Headings of the agent have levels of their own.
            found = page.evaluate(
                "async () => (await axe.run({ rules: { 'heading-order': { enabled: false } } }))"
                ".violations.map((each) => [each.id, each.nodes.map((node) => node.html)])"
            )
            assert found == [], path


def test_a_decision_is_made_in_the_browser(browser: Browser, tmp_path: Path) -> None:
    approvals = Approvals(tmp_path / "approvals.db")
    asked = run(approvals.ask, SESSION, "Bash", {"command": "./deploy.sh"})
    with opened(browser, app(approvals, approve=True), "/approvals") as page:
        expect(page.get_by_role("navigation")).to_contain_text("Approvals1")
        page.get_by_placeholder("Why not").fill("Not today")
        page.get_by_role("button", name="Deny").click()
        expect(page.get_by_text("denied by viewer: Not today")).to_be_visible()
        other = run(approvals.ask, SESSION, "Bash", {"command": "./deploy.sh\n./check.sh", "timeout": 9})
        page.get_by_text("Edit before it runs").click()
        expect(page.get_by_label("command")).to_have_value("./deploy.sh\n./check.sh")
        page.get_by_label("command").fill("./deploy.sh --dry-run\n./check.sh")
        page.get_by_role("button", name="Allow").click()
        expect(page.get_by_text("granted by viewer")).to_be_visible()
    decided = run(approvals.get, asked.id)
    assert (decided.state, decided.message) == ("denied", "Not today")
    edited = run(approvals.get, other.id)
    assert edited.new_input == {"command": "./deploy.sh --dry-run\n./check.sh", "timeout": 9}


def test_light_and_dark_are_chosen_and_kept(browser: Browser, view: View) -> None:
    with opened(browser, view, color_scheme="light") as page:
        paper = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(paper)
        page.keyboard.press("t")
        page.keyboard.press("t")
        assert page.evaluate(paper) != light
        dark = page.evaluate(paper)
        page.reload()
        until(page, f"{paper} === '{dark}'")


def test_a_page_that_nobody_sees_does_not_listen(browser: Browser, view: View, config: Path) -> None:
    path = config / "projects" / KEY / f"{SESSION}.jsonl"
    hide = (
        "(isHidden) => { Object.defineProperty(document, 'hidden', { value: isHidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )
    with opened(browser, view, f"/s/{SESSION}") as page:
        expect(page.locator(".live-sign")).to_be_visible()
        page.evaluate(hide, True)
        expect(page.locator(".live-sign")).to_be_hidden()
        w = Writer()
        w.count = 9_000
        w.prompt("While nobody looked")
        with path.open("ab") as file:
            file.write(w.data())
        page.evaluate(hide, False)
        expect(page.get_by_text("While nobody looked")).to_be_visible()
