"""Announcements of published slots to Airflow and its listeners: assets, metrics, a structured event, lineage, notifications.

Only real publishes are announced, each once its task has succeeded; after a crash one may be announced twice, so each names its
dataset and slot. Nothing here decides anything: a failed announcement is a warning in the log, and never fails a run.
"""
