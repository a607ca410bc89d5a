"""The page in Airflow's UI: what is known of datasets, and the actions on them."""
