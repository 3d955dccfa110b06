INSERT INTO floodmark.instance_switches (source, source_schema, source_name, old_name, old_object_id, old_created_at,
    new_name, added, columns, enabling, drops, since_lsn, approved_by)
VALUES (%(source)s, %(source_schema)s, %(source_name)s, %(old_name)s, %(old_object_id)s, %(old_created_at)s,
    %(new_name)s, %(added)s, %(columns)s, %(enabling)s, %(drops)s, %(since_lsn)s, %(by)s)
RETURNING switch_id
