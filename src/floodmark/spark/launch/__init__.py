"""Starting the load job with spark-submit: its command, its environment, and what its output says."""
