"""Tests of the frameworks that fail with steno in the place of their stores, and why."""

LISTED: dict[str, str] = {}
"""The beginning of a test's name, and the reason."""
