-- The next run under the new name raises those whose cause has not ended.
UPDATE floodmark.alerts SET ended_at = now() WHERE subject = %(pipeline)s AND ended_at IS NULL
