"""To places outside: what is owed to them, and how it gets there."""
