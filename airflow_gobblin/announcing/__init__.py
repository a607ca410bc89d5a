"""What Airflow, and what listens to it, is told of published slots: assets, metrics, a structured event, lineage, notifications.

Only real publishes are told, and each once its task has succeeded; after a crash one may be told twice, so each tells its
dataset and its slot. Nothing here decides anything: what can't be told is a warning in the log, and never fails a run.
"""
