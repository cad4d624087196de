"""Reads and writes sessions on this machine's disk, where Claude Code keeps them."""

from outrider.transcripts._disk.files import SessionFile
from outrider.transcripts._disk.read import Disk

__all__ = ["Disk", "SessionFile"]
