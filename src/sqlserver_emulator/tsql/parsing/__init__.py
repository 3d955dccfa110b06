"""From tokens to statements: ``batch.parse_batch``, ``procedure.parse_procedure`` and ``procedure.parse_parameters``."""
