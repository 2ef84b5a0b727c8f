"""Runtimes: what carries a turn out. The only package that knows engine and store together."""
