"""The public web: files that a person points at."""
