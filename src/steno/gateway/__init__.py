"""The long-running service: HTTP for programs and people, over the same sessions as every front end."""
