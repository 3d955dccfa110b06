-- The order is that in which all runs lock tables: by code points, in any collation of the database.
SELECT source_schema, source_name, watermark
FROM floodmark.tables
WHERE pipeline = %(pipeline)s
  AND (source_schema, source_name) IN (SELECT * FROM unnest(%(source_schemas)s::text[], %(source_names)s::text[]))
ORDER BY source_schema COLLATE "C", source_name COLLATE "C"
FOR UPDATE
