"""The programs that are measured, each run as a process of its own.

Those of peers run in an environment that has neither this project's package nor Airflow: they import nothing of them. Each ends
with a line of JSON: `seconds`, what is compared; `phases`, by name; `facts`, what is to be equal among contenders.
"""
