"""Moving bytes to an agent and back: child processes, pairs in memory, and the contract for transports of
your own."""

from outrider.command import Command
from outrider.transports._brief import Finished, run_to_end
from outrider.transports._intercept import Interceptor, Unreachable, intercept, intercepted, is_intercepted
from outrider.transports._memory import MemoryTransport, memory_pair
from outrider.transports._process import Closer, ProcessTransport, Reader, Writer
from outrider.transports._registry import LiveProcess, live_processes
from outrider.transports._trace import Traced, traced
from outrider.transports._trace_file import TraceFile
from outrider.transports._trace_format import Recording, TraceRecord, TraceRun, read_trace
from outrider.transports._trace_timeline import TimelineEntry, timeline
from outrider.transports._transport import Messages, Sendable, Transport

__all__ = [
    "Closer",
    "Command",
    "Finished",
    "Interceptor",
    "LiveProcess",
    "MemoryTransport",
    "Messages",
    "ProcessTransport",
    "Reader",
    "Recording",
    "Sendable",
    "TimelineEntry",
    "TraceFile",
    "TraceRecord",
    "TraceRun",
    "Traced",
    "Transport",
    "Unreachable",
    "Writer",
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
