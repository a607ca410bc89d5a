"""The page in Airflow's UI, to look at datasets and to act on them."""
