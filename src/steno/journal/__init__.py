"""What happened: facts, how they are written down, and the views folded from them. Pure."""
