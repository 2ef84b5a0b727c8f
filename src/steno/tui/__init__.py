"""The full-screen chat: one session on a terminal. It shows what the service says was stored, and
nothing else.

Textual is loaded when the chat starts, never before: `usable` and `run` are what a front end needs
of it.
"""
