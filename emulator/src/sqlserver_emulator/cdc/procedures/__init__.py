"""The system procedures ``sys.sp_cdc_*`` and their results."""
