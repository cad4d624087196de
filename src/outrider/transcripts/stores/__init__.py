"""Stores for sessions. Import them from `outrider.transcripts`."""
