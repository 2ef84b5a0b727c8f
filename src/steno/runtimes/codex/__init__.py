"""Codex's app-server as a runtime: it carries the turns out, and each of them is in our journal.

protocol   what it says and what we say, typed
mapping    from its notifications to what we store (acts); pure
gate       stands before what it would do unasked, by hooks of ours (hooks)
patches    changes of files as its model writes them down; pure
rights     whether a command is to leave its sandbox; pure
process    the child: handshake, requests with time limits, its end
thread     which thread of its a session has, and what that knows
naming     the ids of our inputs there; pure
rollout    the end of the file that it keeps of a thread
standing   how a turn stands, by our journal; pure
turn       one turn under way: what it tells, what it asks of us, stops, inputs that steer
recording  acts carried out: facts and drafts
runtime    drives a held session: the same facts, through the same commit path, as our own loop
"""

RUNTIME = "codex"
"""Its name: the kind of a model that it asks, and the source of what it says."""
