"""The tasks of a run's graph, independent of Airflow and Spark."""
