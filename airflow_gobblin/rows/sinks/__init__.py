"""The destinations of rows: the protocol (`base`), a module that declares each sink, and one that writes its files."""
