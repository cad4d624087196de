"""Sessions where the agent's program keeps them: on this machine."""

from outrider.transcripts._disk._files import SessionFile
from outrider.transcripts._disk._reading import Disk

__all__ = ["Disk", "SessionFile"]
