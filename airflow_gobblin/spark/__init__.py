"""The run of a pack in Spark: the submitted code, and the functions that its tasks call."""
