"""Draw docs/report.svg: the plot of a batch that never was, from a seed."""

from pathlib import Path
from random import Random

from outrider.fleet import Outcome, Report, Status
from outrider.session import Usage

PICTURE = Path(__file__).parents[1] / "docs" / "report.svg"
TASKS, AT_ONCE = 500, 12


def report() -> Report:
    """Tasks that take about ten seconds, twelve at once; some fail."""
    chance = Random(9)
    free = [0.0] * AT_ONCE
    outcomes: list[Outcome] = []
    for number in range(TASKS):
        place = min(range(AT_ONCE), key=free.__getitem__)
        duration = chance.lognormvariate(2.3, 0.55)
        free[place] += duration
        status: Status = (
            "done" if (luck := chance.random()) > 0.06 else "failed" if luck > 0.02 else "over_budget"
        )
        outcomes.append(
            Outcome(
                id=f"task-{number}",
                number=number,
                status=status,
                attempts=1,
                duration=duration,
                ended_at=free[place],
                usage=Usage(1200, 300, 4000, cost_usd=0.0213),
            )
        )
    return Report.from_outcomes(outcomes)


if __name__ == "__main__":
    PICTURE.write_text(report().to_svg(), encoding="utf-8")
