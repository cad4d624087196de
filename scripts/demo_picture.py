"""Write docs/demo.svg: a picture of `outrider demo`, made from a run of it at a terminal."""

import sys
from pathlib import Path

import pexpect

PICTURE = Path(__file__).parents[1] / "docs" / "demo.svg"


def make(path: Path) -> None:
    """Run the demo, say yes, and keep the picture."""
    arguments = ["-m", "outrider", "demo", "--speed", "10", "--svg", str(path)]
    demo = pexpect.spawn(sys.executable, arguments, dimensions=(60, 100), timeout=60)
    demo.expect_exact(b" no  ")
    demo.send("y")
    demo.expect(pexpect.EOF)
    demo.close()
    if demo.exitstatus != 0:
        sys.exit(f"the demo ended with {demo.exitstatus}: {demo.before!r}")


if __name__ == "__main__":
    make(PICTURE)
