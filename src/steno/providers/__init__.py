"""Providers as a person deals with them: their keys, and what they have to offer."""
