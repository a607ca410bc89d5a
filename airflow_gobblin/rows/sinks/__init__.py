"""The destinations of rows: the port (`base`), a module that declares each sink, and modules that write their files."""
