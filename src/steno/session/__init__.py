"""A session, for whatever shows it or runs it: loaded once, held under a lease, followed live."""
