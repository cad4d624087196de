"""Write the state diagrams in docs/internals/parts.md, from the tables that the code follows."""

import re
from pathlib import Path

from outrider.protocol import MESSAGE_TABLE, RUN_TABLE

PAGE = Path(__file__).parents[1] / "docs" / "internals" / "parts.md"
BLOCK = re.compile(r"```mermaid\n.*?```", re.DOTALL)


def main() -> None:
    """Put the diagrams in their places, in order."""
    diagrams = iter([MESSAGE_TABLE.diagram(), RUN_TABLE.diagram()])
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BLOCK.sub(lambda _: f"```mermaid\n{next(diagrams)}\n```", text), encoding="utf-8")


if __name__ == "__main__":
    main()
