"""Running a pack in Spark: what is submitted, and what its tasks call."""
