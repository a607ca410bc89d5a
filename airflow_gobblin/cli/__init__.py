"""`airflow gobblin …`: what people see of datasets, and do to them, on the command line."""
