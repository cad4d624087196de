"""Moving bytes to an agent and back: child processes, pairs in memory, and the contract for transports of
your own."""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.command import Command as Command
    from outrider.transports._memory import MemoryTransport as MemoryTransport
    from outrider.transports._memory import memory_pair as memory_pair
    from outrider.transports._process.transport import Closer as Closer
    from outrider.transports._process.transport import Finished as Finished
    from outrider.transports._process.transport import LiveProcess as LiveProcess
    from outrider.transports._process.transport import ProcessTransport as ProcessTransport
    from outrider.transports._process.transport import Reader as Reader
    from outrider.transports._process.transport import Writer as Writer
    from outrider.transports._process.transport import live_processes as live_processes
    from outrider.transports._process.transport import run_to_end as run_to_end
    from outrider.transports._trace.format import Recording as Recording
    from outrider.transports._trace.format import TraceRecord as TraceRecord
    from outrider.transports._trace.format import TraceRun as TraceRun
    from outrider.transports._trace.format import read_trace as read_trace
    from outrider.transports._trace.timeline import TimelineEntry as TimelineEntry
    from outrider.transports._trace.timeline import timeline as timeline
    from outrider.transports._trace.writer import Traced as Traced
    from outrider.transports._trace.writer import TraceFile as TraceFile
    from outrider.transports._trace.writer import traced as traced
    from outrider.transports._transport import Interceptor as Interceptor
    from outrider.transports._transport import Messages as Messages
    from outrider.transports._transport import Sendable as Sendable
    from outrider.transports._transport import Transport as Transport
    from outrider.transports._transport import Unreachable as Unreachable
    from outrider.transports._transport import intercept as intercept
    from outrider.transports._transport import intercepted as intercepted
    from outrider.transports._transport import is_intercepted as is_intercepted
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
