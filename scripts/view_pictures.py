"""Takes the pictures of the viewer that are in `docs/pictures`, in Chromium."""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import anyio
from playwright.sync_api import expect

from outrider import Approvals, Sessions, Usage, fleet
from outrider.fleet import Journal
from outrider.view import app
from tests.fleet.test_report import outcome
from tests.view import sample
from tests.view.serving import chromium, served

PICTURES: Final = Path(__file__).parents[1] / "docs" / "pictures"
_KINDS: Final = (
    ("ApiFailed", "529 overloaded, and it did not get better"),
    ("TurnTimedOut", "The turn took longer than 300 s"),
)


async def _ask(place: Path) -> None:
    approvals = Approvals(place)
    edit = {
        "file_path": "/srv/shop/src/refunds.py",
        "old_string": "    amount = 0.0\n    return round(amount, 2)",
        "new_string": "    amount = Decimal(0)\n    return amount.quantize(CENT, ROUND_HALF_UP)",
    }
    options = [
        {"label": "All of them", "description": "41,200 rows, about two minutes"},
        {"label": "Only this year's", "description": "the others are closed"},
    ]
    question = {"question": "Shall I migrate the old refunds, too?", "header": "Scope", "options": options}
    deploy = {"command": "kubectl -n shop rollout restart deploy/api", "description": "Restart the API"}
    await approvals.ask(sample.SESSION, "AskUserQuestion", {"questions": [question]})
    await approvals.ask(sample.SESSION, "Edit", edit, cwd="/srv/shop")
    await approvals.ask(sample.SESSION, "Bash", deploy, cwd="/srv/shop", reason="It changes production")


def _work(journal: Journal) -> None:
    """A batch of 240 tasks that is at three quarters."""
    journal.add((n, fleet.Task(id=f"repo-{n:03}", prompt="Update the dependencies")) for n in range(240))
    for number in range(204):
        id = f"repo-{number:03}"
        journal.begin(id, 1, "w", sample.SESSION)
        if number >= 196:
            continue
        kind, error = _KINDS[number % 2]
        is_failed = number % 17 == 5
        fields = {"error_kind": kind, "error": error} if is_failed else {"text": "All tests pass."}
        took = 14.0 + number * 37 % 80
        ended = outcome(
            number,
            "failed" if is_failed else "done",
            id=id,
            session_id=sample.SESSION,
            duration=took,
            usage=(usage := Usage(9_000, 700, cost_usd=0.06 + took / 1_000)),
            ended_at=time.time() - (196 - number) * 8,
            **fields,
        )
        journal.end(ended, usage=usage, ran=took)


def take(folder: Path) -> None:
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sample.write(place / "config")
        anyio.run(_ask, place / "approvals.db")
        journal = stack.enter_context(Journal(place / "run.db", writing=True))
        _work(journal)
        sessions, approvals = Sessions(config=place / "config"), Approvals(place / "approvals.db")
        view = app(place / "run.db", sessions, approvals, approve=True)
        address = stack.enter_context(served(view))
        page = stack.enter_context(chromium()).new_page(
            base_url=address, viewport={"width": 1180, "height": 860}, color_scheme="light"
        )
        page.goto(f"/?token={view.token}")
        for name, path in (
            ("session", f"/s/{sample.SESSION}?start=1"),
            ("changes", f"/s/{sample.SESSION}/changes"),
            ("fleet", "/fleet"),
            ("approvals", "/approvals"),
        ):
            page.goto(path)
            expect(page.locator(".loading")).to_have_count(0)
            page.screenshot(path=folder / f"view-{name}.png")


if __name__ == "__main__":
    take(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES)
