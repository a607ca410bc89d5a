"""The append-only, write-once record of a dataset: its records, their fold, and the published files for readers."""
