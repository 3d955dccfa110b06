"""The DAGs, built from the configuration. Nothing heavy is imported: DAG files are parsed over and over."""
