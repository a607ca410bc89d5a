"""Exactly-once ingestion for Airflow and Spark."""
