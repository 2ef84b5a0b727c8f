"""What the command line and the full-screen chat share: neither imports the other for it."""
