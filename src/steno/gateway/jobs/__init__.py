"""Jobs: what runs at its times by itself, while a gateway runs."""
