"""An MCP server on stdin and stdout that misbehaves, for tests: `die`, `wait FIFO` or `die-when-called`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

# Beside this file, which is run by its path.
import server  # type: ignore[import-not-found]


def die(*_: Any) -> Any:
    os._exit(3)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["die"]:
            die()
        case ["wait", fifo]:
            Path(fifo).read_text()
        case ["die-when-called"]:
            answer = server.answer
            server.answer = lambda method, params: (die if method == "tools/call" else answer)(method, params)
        case _:
            sys.exit(__doc__)
    server.main()
