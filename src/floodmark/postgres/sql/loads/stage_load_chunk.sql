-- In the transaction that brings the chunk's rows. The values in braces are filled in, quoted, by warehouse.sink.
UPDATE floodmark.load_chunks
SET state = 'staged', rows = {rows}, staged_at = now(), attempt = {attempt}
WHERE window_id = {window_id} AND source_schema = {source_schema} AND source_name = {source_name}
  AND chunk_no = {chunk_no} AND state = 'planned'
RETURNING chunk_no
