"""The long-running service: HTTP for programs and people, over the sessions of every front end."""
