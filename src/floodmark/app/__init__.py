"""Use cases, one subject per file, called by the command line and by Airflow.

A use case takes a ``Pipeline``, or the ``App`` of all of them, and runs the steps of ``sync`` with its adapters. It
knows neither Airflow's tasks nor the terminal.
"""
