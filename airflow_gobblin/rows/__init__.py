"""The work on rows: sources, converters, sinks, and a row's path between them in a Spark task."""
