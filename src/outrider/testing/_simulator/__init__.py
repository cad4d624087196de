"""The simulated agent: the protocol of the program, played in Python, with a script for its model.

Private: `outrider.testing` has the names that are for users.
"""
