"""Stores that keep sessions: in memory, in files, in SQLite, PostgreSQL, Redis and S3.

Their names are in `outrider.transcripts`. Does not know what is in a transcript but for its summary.
"""
