"""The destinations of rows: the protocol (`base`), a module that declares each sink, and modules that write their files."""
