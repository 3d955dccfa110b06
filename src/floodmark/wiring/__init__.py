"""The composition root: it builds the adapters of a use case from Airflow's connections and the environment.

Only this package and the load job's entry point name adapters. A module of adapters takes from 0.1 to 7 seconds to
import (psycopg, pyarrow, mssql-python; Great Expectations is the slowest), and every DAG file and every command imports
this package: adapters are imported in the function that creates them, here and nowhere else. The same is true of
Airflow's SDK (two seconds), which is needed when a connection is read.
"""
