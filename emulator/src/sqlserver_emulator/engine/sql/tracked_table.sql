-- The functions of one tracked table; statements are separated by a mark of their own. Names in dollar signs are filled
-- in by ddl/tracking/installing.py.

-- After each statement: its rows into the side table. The transition tables hold the rows before and after an update in
-- the same order, so that their places say which belong together where keys were assigned: keys that changed are deletes
-- and inserts, deletes first.
CREATE OR REPLACE FUNCTION $record() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$body$$
DECLARE
    own bigint;
    said text;
    mask bytea;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        said := emulator.take_assigned_columns(TG_RELID);
    END IF;
    IF TG_OP = 'INSERT' THEN
        IF EXISTS (SELECT FROM inserted) THEN
            own := emulator.tracked_transaction($database_id);
            INSERT INTO $side (xdes_id, operation, context, $keys)
            SELECT own, 'I', emulator.tracking_context(), $names FROM inserted;
        END IF;
    ELSIF TG_OP = 'DELETE' THEN
        IF EXISTS (SELECT FROM deleted) THEN
            own := emulator.tracked_transaction($database_id);
            INSERT INTO $side (xdes_id, operation, context, $keys)
            SELECT own, 'D', emulator.tracking_context(), $names FROM deleted;
        END IF;
    ELSIF NOT EXISTS (SELECT FROM inserted) THEN
        RETURN NULL;
    ELSIF strpos(said, 'k') > 0 THEN
        own := emulator.tracked_transaction($database_id);
        INSERT INTO $side (xdes_id, operation, context, $keys)
        WITH o AS (SELECT row_number() OVER () AS place, $named, $own_compared FROM deleted),
        n AS (SELECT row_number() OVER () AS place, $named, $own_compared FROM inserted),
        pairs AS MATERIALIZED (
            SELECT o AS o, n AS n, ROW ($old_compared) IS DISTINCT FROM ROW ($new_compared) AS is_moved FROM o JOIN n USING (place))
        SELECT own, 'D', emulator.tracking_context(), $old_fields FROM pairs WHERE is_moved
        UNION ALL
        SELECT own, CASE WHEN is_moved THEN 'I' ELSE 'U' END, emulator.tracking_context(), $new_fields FROM pairs;
    ELSE
        own := emulator.tracked_transaction($database_id);
        IF $tracks_columns AND length(said || '$stamped') < $all_entries THEN
            mask := emulator.in_set_order(said, coalesce(current_setting('emulator.set_order', true), '')) || decode('$stamped', 'hex');
        END IF;
        INSERT INTO $side (xdes_id, operation, columns, context, $keys)
        SELECT own, 'U', mask, emulator.tracking_context(), $names FROM inserted;
    END IF;
    RETURN NULL;
END $$body$$
--;
-- CHANGETABLE(CHANGES …). First each transaction's changes of a row become one, then those of all transactions: a row
-- that was deleted before it was inserted is an update, since it was there before. NULL lists everything, a negative
-- version nothing.
CREATE OR REPLACE FUNCTION $changes(after bigint)
RETURNS TABLE (version bigint, creation bigint, operation text, columns bytea, context bytea, $key_results)
LANGUAGE sql STABLE SECURITY DEFINER ROWS 1000 AS $$body$$
    WITH merged AS (
        SELECT c.commit_ts, $compared, $last_keys, bool_or(s.operation = 'I') AS is_created,
            CASE WHEN (array_agg(s.operation ORDER BY s.seq DESC))[1] = 'D' THEN 'D'
                WHEN (array_agg(s.operation ORDER BY s.seq))[1] = 'I' THEN 'I' ELSE 'U' END AS operation,
            (array_agg(s.context ORDER BY s.seq DESC))[1] AS context,
            CASE WHEN bool_and(s.columns IS NOT NULL) THEN string_agg(s.columns, ''::bytea ORDER BY s.seq) END AS columns
        FROM emulator.change_tracking_commits c JOIN (SELECT *, $side_compared FROM $side) AS s USING (xdes_id)
        WHERE c.database_id = $database_id AND c.commit_ts > coalesce(after, 0)
          AND CASE WHEN emulator.may_read_tracking($object_id) THEN coalesce(after, 0) >= 0 END
        GROUP BY c.commit_ts, $compared
    ), placed AS (
        SELECT m.*, max(m.commit_ts) OVER same AS version, max(m.commit_ts) FILTER (WHERE m.is_created) OVER same AS creation
        FROM merged m WINDOW same AS (PARTITION BY $compared)
    )
    SELECT p.version, p.creation,
        CASE WHEN bool_or(p.operation = 'D' AND p.commit_ts = p.version) THEN 'D'
            WHEN p.creation IS NULL
                OR bool_or(p.operation = 'U' AND p.commit_ts = p.creation OR p.operation = 'D' AND p.commit_ts < p.creation) THEN 'U'
            ELSE 'I' END,
        CASE WHEN bool_and(p.columns IS NOT NULL) THEN emulator.merged_mask(string_agg(p.columns, ''::bytea ORDER BY p.commit_ts)) END,
        (array_agg(p.context ORDER BY p.commit_ts DESC))[1], $first_keys
    FROM placed p GROUP BY p.version, p.creation, $compared
$$body$$
--;
-- CHANGETABLE(VERSION …): the newest change of a row that there is; a change that is not committed has no version yet.
CREATE OR REPLACE FUNCTION $version($parameters) RETURNS TABLE (version bigint, context bytea, $key_results)
LANGUAGE sql STABLE SECURITY DEFINER ROWS 1 AS $$body$$
    SELECT x.commit_ts, x.context, $row_keys
    FROM (SELECT $named, $own_compared FROM $target WHERE $own_is_given) AS t
    LEFT JOIN LATERAL (
        SELECT c.commit_ts, s.context
        FROM $side s LEFT JOIN emulator.change_tracking_commits c ON c.database_id = $database_id AND c.xdes_id = s.xdes_id
        WHERE $side_is_key ORDER BY c.commit_ts DESC NULLS FIRST, s.seq DESC LIMIT 1) AS x ON true
    WHERE emulator.may_read_tracking($object_id)
$$body$$
