"""What a session refuses, and why."""


class Misused(Exception):
    """What was asked means nothing. Nothing was stored; the message says what would be
    understood."""
