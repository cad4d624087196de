"""Sessions where the agent's program keeps them: on this machine."""

from bridle.transcripts._disk._files import SessionFile
from bridle.transcripts._disk._reading import Disk

__all__ = ["Disk", "SessionFile"]
