"""The commands `airflow gobblin …`, to look at datasets and to act on them."""
