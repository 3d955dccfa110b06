"""The pages of Floodmark in Airflow's own user interface."""
