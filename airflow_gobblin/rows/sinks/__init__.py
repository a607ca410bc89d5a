"""The destinations of rows: the port (`base`), a module that declares each sink, and modules that write their files.

A new built-in sink is a module here, which `model/registry.py` finds by itself. `airflow_gobblin/__init__.py` exports it; for
YAML, `operators/yaml_files.py` and `operators/ingestions.schema.json` name it, too. It passes the contract suite of sinks and
has a golden record. A sink of tables commits to a format of `tables/`.
"""
