"""From tokens to statements: ``batch.parse_batch``, ``procedure.parse_procedure``, ``parse_parameters``."""
