"""The laptop set-up behind ``make run``: starts the emulator, the warehouse and Airflow, and runs the sample on them.

Nothing of production imports it. It starts the emulator as a process, as any user would, and never imports it.
"""
