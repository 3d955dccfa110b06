"""Use cases, one subject per file, called by the command line and by Airflow.

A use case takes an ``AppContext``, gets its adapters from ``wiring``, and runs the steps of ``sync``. It knows neither
Airflow's tasks nor the terminal.
"""
