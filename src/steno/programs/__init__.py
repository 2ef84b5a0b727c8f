"""Our own loop in other people's programs: `steno.Agent` and `steno.AsyncAgent`."""
