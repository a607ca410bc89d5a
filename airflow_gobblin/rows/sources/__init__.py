"""The origins of rows: the port (`base`), and a module or package for each source."""
