INSERT INTO floodmark.tables (pipeline, source_schema, source_name, target_schema, target_name)
VALUES (%(pipeline)s, %(source_schema)s, %(source_name)s, %(target_schema)s, %(target_name)s)
ON CONFLICT (pipeline, source_schema, source_name) DO UPDATE
    SET target_schema = excluded.target_schema, target_name = excluded.target_name
    WHERE (tables.target_schema, tables.target_name) <> (excluded.target_schema, excluded.target_name)
      AND tables.watermark IS NULL
