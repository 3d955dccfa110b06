"""Change data capture: the log reader, capture and cleanup jobs, the sys.sp_cdc_* procedures and cdc.* functions."""
