"""From tokens to statements: ``batch.parse_batch``, ``modules.parse_procedure``, ``procedure.parse_parameters``."""
