"""What the agent's program leaves on disk: where the sessions of a project are.

Does not talk to a running agent.
"""

from bridle.transcripts._places import config_folder, has_sessions, project_folder, project_key

__all__ = ["config_folder", "has_sessions", "project_folder", "project_key"]
