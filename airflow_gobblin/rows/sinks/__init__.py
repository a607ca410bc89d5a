"""The destinations of rows: the protocol (`base`), and one file a sink."""
