"""Moving bytes to an agent and back: child processes, pairs in memory, and the contract for transports of
your own."""

from outrider.command import Command
from outrider.transports._process.transport import (
    Finished,
    LiveProcess,
    ProcessTransport,
    live_processes,
    run_to_end,
)
from outrider.transports._trace.format import (
    Recording,
    TimelineEntry,
    TraceRecord,
    TraceRun,
    read_trace,
    timeline,
)
from outrider.transports._trace.writer import Traced, TraceFile, traced
from outrider.transports._transport import (
    Interceptor,
    MemoryTransport,
    Messages,
    Sendable,
    Transport,
    Unreachable,
    intercept,
    intercepted,
    is_intercepted,
    memory_pair,
)

__all__ = [
    "Command",
    "Finished",
    "Interceptor",
    "LiveProcess",
    "MemoryTransport",
    "Messages",
    "ProcessTransport",
    "Recording",
    "Sendable",
    "TimelineEntry",
    "TraceFile",
    "TraceRecord",
    "TraceRun",
    "Traced",
    "Transport",
    "Unreachable",
    "intercept",
    "intercepted",
    "is_intercepted",
    "live_processes",
    "memory_pair",
    "read_trace",
    "run_to_end",
    "timeline",
    "traced",
]
