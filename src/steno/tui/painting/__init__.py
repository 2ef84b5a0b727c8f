"""Blocks as lines of a terminal: their colours, their Markdown, and each kind of block."""
