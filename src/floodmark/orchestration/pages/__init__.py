"""What Floodmark shows in Airflow's own user interface."""
