"""Moving bytes to an agent and back: child processes, pairs in memory, and the contract for transports of
your own."""

from bridle.command import Command
from bridle.transports._brief import Finished, run_to_end
from bridle.transports._intercept import Interceptor, Unreachable, intercept, intercepted, is_intercepted
from bridle.transports._memory import MemoryTransport, memory_pair
from bridle.transports._process import Closer, ProcessTransport, Reader, Writer
from bridle.transports._registry import LiveProcess, live_processes
from bridle.transports._trace import Traced, traced
from bridle.transports._trace_file import TraceFile
from bridle.transports._trace_format import Recording, TraceRecord, TraceRun, read_trace
from bridle.transports._trace_timeline import TimelineEntry, timeline
from bridle.transports._transport import Messages, Sendable, Transport

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
