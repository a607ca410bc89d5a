"""The origins of rows: the protocol (`base`), and one file a source."""
