"""The one truth about progress: watermarks and windows, in schema ``floodmark`` of the warehouse."""
