"""The processing of rows on their way: converters, and row checks."""
