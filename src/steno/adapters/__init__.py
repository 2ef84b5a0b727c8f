"""steno under the frameworks that people have: a module for each, imported when it is used."""
