"""The programs that are measured, each run as a process of its own.

The peers' programs run in an environment that has neither this project's package nor Airflow, so they import neither. Each ends
with a line of JSON: `seconds`, which is compared; `phases`, by name; `facts`, which must be equal among contenders.
"""
