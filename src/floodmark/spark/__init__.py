"""The ``sqlserver_cdc`` data source and the load job: reading, net changes and staging, all in Arrow."""
