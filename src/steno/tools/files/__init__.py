"""The tools `read_file`, `write_file` and `edit_file`, and what they share."""
