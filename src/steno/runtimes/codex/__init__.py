"""Codex's app-server as a runtime: codex carries the turns out, and our journal has each of them.

driver     drives a session: what to do next is our engine's decision, what a turn does is codex's
turn       one turn: codex's messages become facts, its questions are answered, stops and steering
mapping    from codex's notifications to effects; pure
calls      the life of a call, as a table of states; pure
effects    what is to be stored and shown; pure values
thread     which thread a session has, what codex lost of it, and what it is told again
process    the app-server as a child process: start, requests with time limits, end
protocol   the messages of the app-server, typed
items      the items of a thread, typed
gate       asks us before codex does anything that it would do unasked
gate_hook  the script that codex runs for the gate
policy     what a call changes, and whether it is to leave codex's sandbox; pure
translate  calls, outcomes and failures of codex in the words of our journal; pure
binary     where the codex program is
"""

RUNTIME = "codex"
"""Its name: the kind of a model that it asks, and the source of what it says."""
