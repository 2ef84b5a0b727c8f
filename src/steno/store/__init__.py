"""Where journals live."""
