"""What to do next, as pure functions of the journal."""
