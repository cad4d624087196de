"""Shims: private modules of the reference SDK that programs import, patch or derive from all the same.

Each has the names that programs are known to use, and nothing more. New code has no need of them.
"""
