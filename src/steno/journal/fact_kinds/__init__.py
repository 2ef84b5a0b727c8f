"""Facts that are declared apart: the base of all, and those of accounts."""
