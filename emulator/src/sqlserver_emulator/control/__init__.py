"""The emulator's own controls: schema ``emulator``, which no SQL Server has. Clock, capture, faults on demand.

Everything here is off until a client calls ``EXEC emulator.…``; then the rest of the emulator asks this package.
"""
