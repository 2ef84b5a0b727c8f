"""Commands for what is around sessions: providers, configuration, usage, the store's upkeep."""
