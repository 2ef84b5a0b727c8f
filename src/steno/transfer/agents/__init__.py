"""Conversations of other programs, as sessions."""
