"""Tools: what an agent may do to the world."""
