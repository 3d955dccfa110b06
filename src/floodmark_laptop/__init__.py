"""The laptop set-up behind ``make run``: it starts the emulator, the warehouse and Airflow, and runs the sample job.

No production code imports it. It starts the emulator as a process, as any user would, and never imports it.
"""
