"""What `/proc` says of processes, for tests that look by themselves."""

from __future__ import annotations

from outrider.transports._process.processes import ProcTable

_table = ProcTable()
stat_of, environment_of, tag_of = _table.stat_of, _table.environment_of, _table.tag_of


def process_ids() -> list[int]:
    """All of them, the newest first."""
    return [pid for pid, _ in _table.entries()]
