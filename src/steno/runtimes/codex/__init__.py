"""Codex's app-server as a runtime: it carries the turns out, and each of them is in our journal.

protocol   what it says and what we say, typed
mapping    from its notifications to what we store (acts); pure
gate       stands before commands that its own rules would let run unasked
process    the child: handshake, requests with time limits, its end
thread     which thread of its a session has, and what that knows
naming     the ids of our inputs there; pure
rollout    the end of the file that it keeps of a thread
standing   how a turn stands, by our journal; pure
runtime    drives a held session: the same facts, through the same commit path, as our own loop
"""

RUNTIME = "codex"
"""Its name: the kind of a model that it asks, and the source of what it says."""
