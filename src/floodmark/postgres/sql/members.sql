-- name: advance_members
-- Compare and set: a mark that is no longer the one that was read from stays, and the member is read from it again.
UPDATE floodmark.members AS m
SET mark = w.after_mark, window_id = w.window_id
FROM floodmark.window_members AS w
WHERE w.window_id = %(window_id)s
  AND w.source_schema = %(source_schema)s AND w.source_name = %(source_name)s
  AND m.pipeline = %(pipeline)s AND m.source_schema = w.source_schema AND m.source_name = w.source_name
  AND m.member = w.member AND m.mark IS NOT DISTINCT FROM w.before_mark

-- name: count_quarantined_messages
SELECT reason, count(*) AS messages
FROM floodmark.quarantined_messages
WHERE pipeline = %(pipeline)s
GROUP BY reason ORDER BY messages DESC, reason

-- name: drop_other_members
-- A load of the whole table begins with the members that there are now.
DELETE FROM floodmark.members
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND member <> ALL (%(members)s::text[])

-- name: drop_window_members
DELETE FROM floodmark.window_members
WHERE window_id = %(window_id)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s

-- name: forget_mark
UPDATE floodmark.members
SET mark = NULL, verdict = NULL, cause = '', hint = '', since = now()
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND member = %(member)s

-- name: forget_marks_of_absent
-- The mark of a member that a load of the whole table has not read: the target may be new, or of a backup, so that its
-- rows are not those of the mark. Names are filled in, quoted.
UPDATE floodmark.members AS m
SET mark = NULL
WHERE m.pipeline = %(pipeline)s AND m.source_schema = %(source_schema)s AND m.source_name = %(source_name)s
  AND m.mark IS NOT NULL
  AND NOT EXISTS (SELECT FROM {staging} AS s WHERE s.{member}::text = m.member)

-- name: list_marks
SELECT source_schema, source_name, member, mark
FROM floodmark.members
WHERE pipeline = %(pipeline)s
ORDER BY source_schema, source_name, member

-- name: list_stopped_members
SELECT source_schema, source_name, member, verdict, cause, hint
FROM floodmark.members
WHERE pipeline = %(pipeline)s AND verdict = ANY (%(stops)s)
ORDER BY source_schema, source_name, member

-- name: quarantine_messages
-- A message is kept once, whatever the number of tables and windows that have met it.
INSERT INTO floodmark.quarantined_messages
    (pipeline, topic, member, place, reason, body, source_schema, source_name, window_id)
SELECT %(pipeline)s, found.*, %(source_schema)s, %(source_name)s, %(window_id)s
FROM unnest(%(topics)s::text[], %(members)s::text[], %(places)s::text[], %(reasons)s::text[], %(bodies)s::bytea[])
    AS found (topic, member, place, reason, body)
ON CONFLICT (pipeline, topic, member, place) DO NOTHING

-- name: record_members
INSERT INTO floodmark.members AS known (pipeline, source_schema, source_name, member, verdict, cause, hint)
SELECT %(pipeline)s, %(source_schema)s, %(source_name)s, found.*
FROM unnest(%(members)s::text[], %(verdicts)s::text[], %(causes)s::text[], %(hints)s::text[]) AS found
ON CONFLICT (pipeline, source_schema, source_name, member) DO UPDATE SET
    verdict = excluded.verdict, cause = excluded.cause, hint = excluded.hint,
    since = CASE WHEN known.verdict IS NOT DISTINCT FROM excluded.verdict THEN known.since ELSE now() END,
    examined_at = now()

-- name: store_window_members
INSERT INTO floodmark.window_members (window_id, source_schema, source_name, member, before_mark, after_mark)
SELECT %(window_id)s, %(source_schema)s, %(source_name)s, found.*
FROM unnest(%(members)s::text[], %(befores)s::text[], %(afters)s::text[]) AS found (member, before_mark, after_mark)
WHERE found.after_mark IS NOT NULL
