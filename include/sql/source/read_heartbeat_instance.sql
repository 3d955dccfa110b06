-- Parameters: the table, twice. One row: the table's object id and its newest capture instance, NULL where there is none.
SELECT OBJECT_ID(?) AS object_id,
    (SELECT TOP (1) c.capture_instance FROM cdc.change_tables AS c WHERE c.source_object_id = OBJECT_ID(?)
     ORDER BY c.create_date DESC) AS capture_instance
