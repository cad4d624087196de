"""Stores for sessions: in memory, in files, in SQLite, PostgreSQL, Redis and S3.

Import them from `outrider.transcripts`. A store does not interpret transcripts, except to summarise them.
"""
