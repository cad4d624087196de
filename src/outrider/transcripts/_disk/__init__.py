"""Sessions where the agent's program keeps them: on this machine."""

from outrider.transcripts._disk.files import SessionFile
from outrider.transcripts._disk.read import Disk

__all__ = ["Disk", "SessionFile"]
