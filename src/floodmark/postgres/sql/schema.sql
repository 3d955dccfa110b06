-- name: ensure_schema
-- Floodmark's own tables in the warehouse. Run under an advisory lock; every statement may be repeated.
-- CREATE SCHEMA IF NOT EXISTS needs CREATE on the database also where an administrator has made the schema.
DO $$
BEGIN
    IF to_regnamespace('floodmark') IS NULL THEN CREATE SCHEMA floodmark; END IF;
    IF to_regnamespace('floodmark_staging') IS NULL THEN CREATE SCHEMA floodmark_staging; END IF;
END
$$;

DO $$
BEGIN
    IF to_regtype('floodmark.lsn') IS NULL THEN
        CREATE DOMAIN floodmark.lsn AS bytea;
    END IF;
    -- Version 10: a change of an event stream has the place in its transaction behind the LSN.
    ALTER DOMAIN floodmark.lsn DROP CONSTRAINT IF EXISTS lsn_is_a_position;
    ALTER DOMAIN floodmark.lsn ADD CONSTRAINT lsn_is_a_position
        CHECK (octet_length(VALUE) IN (10, 14) AND VALUE <> '\x00000000000000000000');
    COMMENT ON DOMAIN floodmark.lsn IS
        'A position in the log of a source: ten bytes, never zero; of a single change, four more';
END
$$;

CREATE TABLE IF NOT EXISTS floodmark.ledger_version (
    version     integer     NOT NULL PRIMARY KEY,
    made_at     timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS floodmark.tables (
    pipeline                text        NOT NULL,
    source_schema           text        NOT NULL,
    source_name             text        NOT NULL,
    target_schema           text        NOT NULL,
    target_name             text        NOT NULL,
    watermark               floodmark.lsn,
    watermark_at            timestamp,
    instance_name           text,
    instance_object_id      integer,
    instance_created_at     timestamp,
    first_load_finished_at  timestamp,
    consistent              boolean     NOT NULL DEFAULT false,
    window_id               bigint,
    updated_at              timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, source_schema, source_name),
    CONSTRAINT one_writer_per_target UNIQUE (target_schema, target_name)
);
ALTER TABLE floodmark.tables ADD COLUMN IF NOT EXISTS read_lsn floodmark.lsn;
ALTER TABLE floodmark.tables ADD COLUMN IF NOT EXISTS read_lsn_at timestamp;
-- Version 14: which table the target was at the last merge. Targets of an earlier version get theirs with the next one.
ALTER TABLE floodmark.tables ADD COLUMN IF NOT EXISTS target_mark text;
ALTER TABLE floodmark.tables ADD COLUMN IF NOT EXISTS target_columns text[];
ALTER TABLE floodmark.tables ADD COLUMN IF NOT EXISTS target_window_id bigint;
-- Version 15.
ALTER TABLE floodmark.tables ADD COLUMN IF NOT EXISTS column_names jsonb;
COMMENT ON COLUMN floodmark.tables.column_names IS
    'The names in the target by those of the source, also of columns that it no longer has; NULL for the same names';
-- Version 17.
ALTER TABLE floodmark.tables ADD COLUMN IF NOT EXISTS definition jsonb;
COMMENT ON COLUMN floodmark.tables.definition IS
    'The settings of columns with which the target was loaded, by their names at the source, and under "" the naming';
UPDATE floodmark.tables
SET definition = jsonb_build_object('', jsonb_build_object('naming',
        CASE WHEN column_names IS NULL THEN 'keep' ELSE 'snake_case' END))
WHERE definition IS NULL AND (watermark IS NOT NULL OR read_lsn IS NOT NULL);
COMMENT ON COLUMN floodmark.tables.target_mark IS
    'The numbers of the files of ledger and target: where they are other ones, one of the two was made again or restored';
COMMENT ON COLUMN floodmark.tables.target_columns IS 'The columns of the target that the last merge wrote';
COMMENT ON COLUMN floodmark.tables.target_window_id IS 'The last window that wrote rows: the highest __window_id of the target';
ALTER TABLE floodmark.tables ADD COLUMN IF NOT EXISTS instance_store_id integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN floodmark.tables.instance_store_id IS
    'The object_id of the side table that holds the changes (change tracking); 0: not known';
COMMENT ON COLUMN floodmark.tables.read_lsn IS
    'The newest LSN of the source when the newest load had been read: until the table is consistent the log must have it';
COMMENT ON COLUMN floodmark.tables.watermark IS 'The last LSN examined: the target is complete up to it';
COMMENT ON COLUMN floodmark.tables.watermark_at IS 'Commit time of the watermark, local time of the source';
COMMENT ON COLUMN floodmark.tables.consistent IS
    'A window whose end is not before the read of the first load has been published';

CREATE TABLE IF NOT EXISTS floodmark.windows (
    window_id   bigint        NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline    text          NOT NULL,
    to_lsn      floodmark.lsn NOT NULL,
    to_lsn_at   timestamp,
    state       text          NOT NULL DEFAULT 'planned'
        CONSTRAINT known_state CHECK (state IN ('planned', 'merged', 'checked', 'advanced')),
    attempt     integer       NOT NULL DEFAULT 0,
    plan        jsonb         NOT NULL,
    opened_at   timestamptz   NOT NULL DEFAULT now(),
    merged_at   timestamptz,
    checked_at  timestamptz,
    advanced_at timestamptz
);
ALTER TABLE floodmark.windows ADD COLUMN IF NOT EXISTS lane text NOT NULL DEFAULT '';
DROP INDEX IF EXISTS floodmark.one_unfinished_window_per_pipeline;
CREATE UNIQUE INDEX IF NOT EXISTS one_unfinished_window_per_lane
    ON floodmark.windows (pipeline, lane) WHERE state <> 'advanced';
COMMENT ON COLUMN floodmark.windows.lane IS
    'Empty for the windows that follow the log; "load schema.table", "replay from-to", "release schema.table", "import schema.table" for others';
-- Version 12: what the charts of the status page show. Windows of an earlier version have NULL.
ALTER TABLE floodmark.windows ADD COLUMN IF NOT EXISTS lag_seconds double precision;
ALTER TABLE floodmark.windows ADD COLUMN IF NOT EXISTS dag_id text;
ALTER TABLE floodmark.windows ADD COLUMN IF NOT EXISTS run_id text;
COMMENT ON COLUMN floodmark.windows.lag_seconds IS
    'The age of the end of the window when it was published, before that when it was opened; NULL where no watermark moves';
COMMENT ON COLUMN floodmark.windows.dag_id IS 'The DAG of run_id';
COMMENT ON COLUMN floodmark.windows.run_id IS
    'The last run of Airflow that opened or continued the window; NULL where the command line did';

CREATE TABLE IF NOT EXISTS floodmark.window_tables (
    window_id        bigint    NOT NULL REFERENCES floodmark.windows ON DELETE CASCADE,
    source_schema    text      NOT NULL,
    source_name      text      NOT NULL,
    kind             text      NOT NULL,
    after_lsn        floodmark.lsn,
    read_finished_at timestamp,
    read_rows        bigint    NOT NULL DEFAULT 0,
    staged_rows      bigint    NOT NULL DEFAULT 0,
    inserted_rows    bigint    NOT NULL DEFAULT 0,
    updated_rows     bigint    NOT NULL DEFAULT 0,
    deleted_rows     bigint    NOT NULL DEFAULT 0,
    unchanged_rows   bigint    NOT NULL DEFAULT 0,
    quarantined_rows bigint    NOT NULL DEFAULT 0,
    warned_rows      bigint    NOT NULL DEFAULT 0,
    PRIMARY KEY (window_id, source_schema, source_name)
);

ALTER TABLE floodmark.window_tables ADD COLUMN IF NOT EXISTS swept_rows bigint NOT NULL DEFAULT 0;
ALTER TABLE floodmark.window_tables ADD COLUMN IF NOT EXISTS read_lsn floodmark.lsn;
ALTER TABLE floodmark.window_tables ADD COLUMN IF NOT EXISTS read_lsn_at timestamp;
COMMENT ON COLUMN floodmark.window_tables.read_lsn IS 'The newest LSN of the source when the read had ended';
-- Version 12.
ALTER TABLE floodmark.window_tables ADD COLUMN IF NOT EXISTS margin_seconds double precision;
ALTER TABLE floodmark.window_tables ADD COLUMN IF NOT EXISTS change_rows bigint;
ALTER TABLE floodmark.window_tables ADD COLUMN IF NOT EXISTS change_bytes bigint;
COMMENT ON COLUMN floodmark.window_tables.margin_seconds IS
    'From the low end of the validity interval to the watermark when the window was opened; NULL where it is unknown';
COMMENT ON COLUMN floodmark.window_tables.change_rows IS
    'The rows of the change tables as last measured while this was the newest window; NULL where nothing measured them';
COMMENT ON COLUMN floodmark.window_tables.change_bytes IS 'Their size';
CREATE INDEX IF NOT EXISTS windows_of_table ON floodmark.window_tables (source_schema, source_name, window_id);
CREATE INDEX IF NOT EXISTS published_windows ON floodmark.windows (pipeline, advanced_at) WHERE state = 'advanced';

-- Version 12: the totals over the published windows of a table, so that no query adds them up. A ledger of an earlier
-- version has them counted here, once.
ALTER TABLE floodmark.tables ADD COLUMN IF NOT EXISTS published_windows bigint;
ALTER TABLE floodmark.tables ADD COLUMN IF NOT EXISTS read_rows bigint;
ALTER TABLE floodmark.tables ADD COLUMN IF NOT EXISTS inserted_rows bigint;
ALTER TABLE floodmark.tables ADD COLUMN IF NOT EXISTS updated_rows bigint;
ALTER TABLE floodmark.tables ADD COLUMN IF NOT EXISTS deleted_rows bigint;
ALTER TABLE floodmark.tables ADD COLUMN IF NOT EXISTS quarantined_rows bigint;
ALTER TABLE floodmark.tables ADD COLUMN IF NOT EXISTS published_window_id bigint;
ALTER TABLE floodmark.tables ADD COLUMN IF NOT EXISTS published_at timestamptz;
UPDATE floodmark.tables AS t
SET published_windows = d.windows, read_rows = d.read_rows, inserted_rows = d.inserted_rows,
    updated_rows = d.updated_rows, deleted_rows = d.deleted_rows, quarantined_rows = d.quarantined_rows,
    published_window_id = d.window_id, published_at = d.advanced_at
FROM (
    SELECT u.pipeline, u.source_schema, u.source_name, count(x.window_id) AS windows,
        coalesce(sum(x.read_rows), 0) AS read_rows, coalesce(sum(x.inserted_rows), 0) AS inserted_rows,
        coalesce(sum(x.updated_rows), 0) AS updated_rows, coalesce(sum(x.deleted_rows), 0) AS deleted_rows,
        coalesce(sum(x.quarantined_rows), 0) AS quarantined_rows, max(x.window_id) AS window_id,
        max(x.advanced_at) AS advanced_at
    FROM floodmark.tables AS u
    LEFT JOIN (
        floodmark.windows AS w
        JOIN floodmark.window_tables AS y USING (window_id)
    ) AS x ON x.pipeline = u.pipeline AND x.source_schema = u.source_schema AND x.source_name = u.source_name
        AND x.state = 'advanced' AND NOT starts_with(x.lane, 'replay ') AND NOT starts_with(x.lane, 'release ')
    WHERE u.published_windows IS NULL
    GROUP BY u.pipeline, u.source_schema, u.source_name
) AS d
WHERE t.pipeline = d.pipeline AND t.source_schema = d.source_schema AND t.source_name = d.source_name;
ALTER TABLE floodmark.tables ALTER COLUMN published_windows SET DEFAULT 0, ALTER COLUMN published_windows SET NOT NULL,
    ALTER COLUMN read_rows SET DEFAULT 0, ALTER COLUMN read_rows SET NOT NULL,
    ALTER COLUMN inserted_rows SET DEFAULT 0, ALTER COLUMN inserted_rows SET NOT NULL,
    ALTER COLUMN updated_rows SET DEFAULT 0, ALTER COLUMN updated_rows SET NOT NULL,
    ALTER COLUMN deleted_rows SET DEFAULT 0, ALTER COLUMN deleted_rows SET NOT NULL,
    ALTER COLUMN quarantined_rows SET DEFAULT 0, ALTER COLUMN quarantined_rows SET NOT NULL;
COMMENT ON COLUMN floodmark.tables.published_windows IS
    'The number of published windows, without replays and releases; the rows are totals over them, also of deleted ones';
COMMENT ON COLUMN floodmark.tables.published_window_id IS 'The newest of them';
COMMENT ON COLUMN floodmark.tables.published_at IS 'When the last of them was published';

CREATE TABLE IF NOT EXISTS floodmark.load_chunks (
    window_id     bigint  NOT NULL,
    source_schema text    NOT NULL,
    source_name   text    NOT NULL,
    chunk_no      integer NOT NULL,
    after_bound   json,
    to_bound      json,
    state         text    NOT NULL DEFAULT 'planned'
        CONSTRAINT known_state CHECK (state IN ('planned', 'staged')),
    rows          bigint,
    staged_at     timestamptz,
    attempt       integer,
    PRIMARY KEY (window_id, source_schema, source_name, chunk_no),
    FOREIGN KEY (window_id, source_schema, source_name) REFERENCES floodmark.window_tables ON DELETE CASCADE
);
COMMENT ON TABLE floodmark.load_chunks IS
    'The chunks of a first load: keys after after_bound up to and including to_bound, by the order of the source';
COMMENT ON COLUMN floodmark.load_chunks.attempt IS 'The load that staged it, in the transaction that brought its rows';

-- Version 9: members of feeds.
CREATE TABLE IF NOT EXISTS floodmark.members (
    pipeline      text        NOT NULL,
    source_schema text        NOT NULL,
    source_name   text        NOT NULL,
    member        text        NOT NULL,
    mark          text,
    window_id     bigint,
    verdict       text,
    cause         text        NOT NULL DEFAULT '',
    hint          text        NOT NULL DEFAULT '',
    since         timestamptz NOT NULL DEFAULT now(),
    examined_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, source_schema, source_name, member)
);
COMMENT ON TABLE floodmark.members IS 'The members of feeds that have a position each, such as devices';
COMMENT ON COLUMN floodmark.members.mark IS 'How far it was read, and the proof of it; NULL: all of it is to be read';
COMMENT ON COLUMN floodmark.members.window_id IS 'The window that moved the mark';
COMMENT ON COLUMN floodmark.members.verdict IS 'Why the last load could not read it; NULL where it could';
COMMENT ON COLUMN floodmark.members.since IS 'When the verdict was first given without another in between';

CREATE TABLE IF NOT EXISTS floodmark.window_members (
    window_id     bigint NOT NULL,
    source_schema text   NOT NULL,
    source_name   text   NOT NULL,
    member        text   NOT NULL,
    before_mark   text,
    after_mark    text   NOT NULL,
    PRIMARY KEY (window_id, source_schema, source_name, member),
    FOREIGN KEY (window_id, source_schema, source_name) REFERENCES floodmark.window_tables ON DELETE CASCADE
);
COMMENT ON TABLE floodmark.window_members IS
    'The marks that move when the window advances, each if it is still the one before. Its rows are deleted then';

-- Version 10.
CREATE TABLE IF NOT EXISTS floodmark.quarantined_messages (
    pipeline      text        NOT NULL,
    topic         text        NOT NULL DEFAULT '',
    member        text        NOT NULL,
    place         text        NOT NULL,
    reason        text        NOT NULL,
    body          bytea,
    source_schema text        NOT NULL,
    source_name   text        NOT NULL,
    window_id     bigint      NOT NULL,
    at            timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, topic, member, place)
);
-- Version 13: another topic has the same members and places.
ALTER TABLE floodmark.quarantined_messages ADD COLUMN IF NOT EXISTS topic text NOT NULL DEFAULT '';
ALTER TABLE floodmark.quarantined_messages
    DROP CONSTRAINT IF EXISTS quarantined_messages_pkey,
    ADD PRIMARY KEY (pipeline, topic, member, place);
COMMENT ON TABLE floodmark.quarantined_messages IS 'Messages of members, such as partitions, that could not be read';
COMMENT ON COLUMN floodmark.quarantined_messages.topic IS
    'The topic or the event hub that has the member; empty for a message of before ledger version 13';
COMMENT ON COLUMN floodmark.quarantined_messages.place IS 'Where the message is in its member, such as its offset';
COMMENT ON COLUMN floodmark.quarantined_messages.body IS 'As it was read; NULL where values are hidden, or where a load met too many';

CREATE TABLE IF NOT EXISTS floodmark.gaps (
    gap_id        bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline      text        NOT NULL,
    source_schema text        NOT NULL,
    source_name   text        NOT NULL,
    verdict       text        NOT NULL,
    cause         text        NOT NULL,
    after_lsn     floodmark.lsn,
    to_lsn        floodmark.lsn,
    after_at      timestamp,
    to_at         timestamp,
    found_at      timestamptz NOT NULL DEFAULT now(),
    window_id     bigint,
    repaired_at   timestamptz
);
CREATE UNIQUE INDEX IF NOT EXISTS one_open_gap_per_table
    ON floodmark.gaps (pipeline, source_schema, source_name) WHERE repaired_at IS NULL;
COMMENT ON TABLE floodmark.gaps IS
    'Stretches of the log whose changes could not be read: after after_lsn up to to_lsn, times of the source';
COMMENT ON COLUMN floodmark.gaps.window_id IS 'The load of the whole table that made up for it';

CREATE TABLE IF NOT EXISTS floodmark.verdicts (
    pipeline      text        NOT NULL,
    source_schema text        NOT NULL,
    source_name   text        NOT NULL,
    verdict       text        NOT NULL,
    cause         text        NOT NULL,
    hint          text        NOT NULL,
    watermark     floodmark.lsn,
    min_lsn       floodmark.lsn,
    max_lsn       floodmark.lsn,
    since         timestamptz NOT NULL DEFAULT now(),
    seen_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, source_schema, source_name)
);
COMMENT ON COLUMN floodmark.verdicts.since IS 'When the verdict was first given without another in between';

CREATE TABLE IF NOT EXISTS floodmark.tombstones (
    target_schema text          NOT NULL,
    target_name   text          NOT NULL,
    key           jsonb         NOT NULL,
    lsn           floodmark.lsn NOT NULL
);
-- Version 7: a hash of the key is indexed, because an entry of an index holds 2,704 bytes, and a binary key as JSON has
-- two digits for each of its up to 1,700 bytes. Version 14: no hash identifies a key. That of jsonb leaves out the sign
-- of a number, whatever its seed; so the index is not unique, and whatever finds a key by its hash compares the key too.
ALTER TABLE floodmark.tombstones DROP CONSTRAINT IF EXISTS tombstones_pkey;
DROP INDEX IF EXISTS floodmark.one_tombstone_per_key;
CREATE INDEX IF NOT EXISTS tombstones_by_key_hash
    ON floodmark.tombstones (target_schema, target_name, jsonb_hash_extended(key, 0));
CREATE INDEX IF NOT EXISTS tombstones_by_lsn ON floodmark.tombstones (target_schema, target_name, lsn);
COMMENT ON TABLE floodmark.tombstones IS
    'Keys that a hard delete removed, so that replaying an older window cannot bring the row back';

CREATE TABLE IF NOT EXISTS floodmark.quarantine (
    quarantine_id bigint        NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline      text          NOT NULL,
    source_schema text          NOT NULL,
    source_name   text          NOT NULL,
    target_schema text          NOT NULL,
    target_name   text          NOT NULL,
    window_id     bigint        NOT NULL,
    rule          text          NOT NULL,
    key           jsonb         NOT NULL,
    lsn           floodmark.lsn NOT NULL,
    row_data      jsonb         NOT NULL,
    at            timestamptz   NOT NULL DEFAULT now()
);
DROP INDEX IF EXISTS floodmark.quarantine_by_key;
CREATE INDEX IF NOT EXISTS quarantine_by_key_hash
    ON floodmark.quarantine (target_schema, target_name, jsonb_hash_extended(key, 0));
-- Version 11.
ALTER TABLE floodmark.quarantine ADD COLUMN IF NOT EXISTS settled_at timestamptz;
ALTER TABLE floodmark.quarantine ADD COLUMN IF NOT EXISTS settled_by text;
ALTER TABLE floodmark.quarantine ADD COLUMN IF NOT EXISTS outcome text
    CONSTRAINT known_outcome CHECK (outcome IN ('released', 'overtaken', 'discarded'));
-- Version 12: settled rows stay, and are not read to count the others.
CREATE INDEX IF NOT EXISTS open_quarantine ON floodmark.quarantine (pipeline, source_schema, source_name, rule)
    WHERE settled_at IS NULL;
COMMENT ON TABLE floodmark.quarantine IS 'Rows that broke a rule, one for each rule; a settled row stays as a record';
COMMENT ON COLUMN floodmark.quarantine.window_id IS 'The window that read it';
COMMENT ON COLUMN floodmark.quarantine.key IS 'The values of its key, in the order of the key';
COMMENT ON COLUMN floodmark.quarantine.row_data IS
    'The row as it was staged. Values other than the key may be corrected before it is released';
COMMENT ON COLUMN floodmark.quarantine.settled_at IS 'NULL while the row waits for a decision';
COMMENT ON COLUMN floodmark.quarantine.settled_by IS 'The operator who released or discarded it';
COMMENT ON COLUMN floodmark.quarantine.outcome IS
    'released: it was merged; overtaken: a later change was; discarded: the target stays as it is';

CREATE TABLE IF NOT EXISTS floodmark.alerts (
    alert_id      bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_key     text        NOT NULL,
    kind          text        NOT NULL,
    subject       text        NOT NULL,
    source_schema text,
    source_name   text,
    what          text        NOT NULL,
    place         text        NOT NULL,
    since         text        NOT NULL,
    means         text        NOT NULL,
    advice        text        NOT NULL,
    raised_at     timestamptz NOT NULL DEFAULT now(),
    seen_at       timestamptz NOT NULL DEFAULT now(),
    times         integer     NOT NULL DEFAULT 1,
    raised_to     text[]      NOT NULL DEFAULT '{}',
    ended_at      timestamptz,
    ended_to      text[]      NOT NULL DEFAULT '{}'
);
ALTER TABLE floodmark.alerts ADD COLUMN IF NOT EXISTS parts text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN floodmark.alerts.parts IS 'The open parts of an event that has ended when its last part has';
ALTER TABLE floodmark.alerts ADD COLUMN IF NOT EXISTS outcome text NOT NULL DEFAULT '';
COMMENT ON COLUMN floodmark.alerts.outcome IS 'The outcome, where the end alone does not explain it';
CREATE UNIQUE INDEX IF NOT EXISTS one_open_alert_per_event ON floodmark.alerts (event_key) WHERE ended_at IS NULL;
COMMENT ON COLUMN floodmark.alerts.times IS 'How often it was raised before it was over; it is sent once';
COMMENT ON COLUMN floodmark.alerts.raised_to IS 'The channels that were notified of it';
COMMENT ON COLUMN floodmark.alerts.ended_to IS 'The channels that were notified of its end';

CREATE TABLE IF NOT EXISTS floodmark.drift_shapes (
    source        text        NOT NULL,
    source_schema text        NOT NULL,
    source_name   text        NOT NULL,
    instance_name text        NOT NULL,
    shape         jsonb       NOT NULL,
    absent        text,
    seen_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (source, source_schema, source_name, instance_name)
);
COMMENT ON TABLE floodmark.drift_shapes IS 'What was last seen of each tracked table: drift is the difference from it';
COMMENT ON COLUMN floodmark.drift_shapes.absent IS 'The class of the drift that took the table away';

CREATE TABLE IF NOT EXISTS floodmark.drift_events (
    event_id            bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source              text        NOT NULL,
    source_schema       text        NOT NULL,
    source_name         text        NOT NULL,
    instance_name       text        NOT NULL,
    instance_object_id  integer     NOT NULL,
    instance_created_at timestamp   NOT NULL,
    kind                text        NOT NULL,
    column_name         text,
    before              text        NOT NULL,
    after               text        NOT NULL,
    is_captured         boolean     NOT NULL,
    ddl                 jsonb       NOT NULL DEFAULT '[]',
    ddl_lsn             floodmark.lsn,
    proposal            text        NOT NULL DEFAULT '',
    policies            jsonb       NOT NULL,
    found_at            timestamptz NOT NULL DEFAULT now(),
    told_at             timestamptz,
    approved_at         timestamptz,
    approved_by         text
);
CREATE INDEX IF NOT EXISTS drift_events_of_table ON floodmark.drift_events (source, source_schema, source_name);
COMMENT ON COLUMN floodmark.drift_events.ddl IS 'The statements behind it, from the DDL history of the capture instance';
COMMENT ON COLUMN floodmark.drift_events.policies IS 'By pipeline, what the configuration said when it was found';

ALTER TABLE floodmark.drift_events ADD COLUMN IF NOT EXISTS is_rejected boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN floodmark.drift_events.is_rejected IS 'Its proposal was turned down';
ALTER TABLE floodmark.drift_events ADD COLUMN IF NOT EXISTS obstacle text NOT NULL DEFAULT '';
COMMENT ON COLUMN floodmark.drift_events.obstacle IS 'Why an added column can never be carried; empty where it can';

CREATE TABLE IF NOT EXISTS floodmark.instance_switches (
    switch_id      bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source         text        NOT NULL,
    source_schema  text        NOT NULL,
    source_name    text        NOT NULL,
    old_name       text        NOT NULL,
    old_object_id  integer     NOT NULL,
    old_created_at timestamp   NOT NULL,
    new_name       text        NOT NULL,
    new_object_id  integer,
    new_created_at timestamp,
    added          text[]      NOT NULL,
    columns        text[]      NOT NULL,
    enabling       text        NOT NULL,
    drops          text        NOT NULL,
    since_lsn      floodmark.lsn,
    state          text        NOT NULL DEFAULT 'approved'
        CONSTRAINT known_state CHECK (state IN ('approved', 'made', 'done', 'given_up')),
    approved_at    timestamptz NOT NULL DEFAULT now(),
    approved_by    text        NOT NULL,
    made_at        timestamptz,
    finished_at    timestamptz
);
CREATE UNIQUE INDEX IF NOT EXISTS one_switch_per_table ON floodmark.instance_switches
    (source, source_schema, source_name) WHERE state IN ('approved', 'made');
COMMENT ON TABLE floodmark.instance_switches IS
    'From a capture instance that lacks columns to a second one that has them; each was approved by an operator';
COMMENT ON COLUMN floodmark.instance_switches.since_lsn IS 'Of the oldest DDL behind it';

CREATE TABLE IF NOT EXISTS floodmark.switched_pipelines (
    switch_id   bigint        NOT NULL REFERENCES floodmark.instance_switches ON DELETE CASCADE,
    pipeline    text          NOT NULL,
    watermark   floodmark.lsn NOT NULL,
    switched_at timestamptz   NOT NULL DEFAULT now(),
    window_id   bigint,
    PRIMARY KEY (switch_id, pipeline)
);
COMMENT ON COLUMN floodmark.switched_pipelines.watermark IS 'Up to here the table was read from the first instance';
COMMENT ON COLUMN floodmark.switched_pipelines.window_id IS 'The load of the new columns';

CREATE TABLE IF NOT EXISTS floodmark.drift_holds (
    event_id      bigint      NOT NULL REFERENCES floodmark.drift_events ON DELETE CASCADE,
    pipeline      text        NOT NULL,
    source_schema text        NOT NULL,
    source_name   text        NOT NULL,
    held_at       timestamptz NOT NULL DEFAULT now(),
    released_at   timestamptz,
    released_by   text,
    PRIMARY KEY (event_id, pipeline)
);
CREATE INDEX IF NOT EXISTS open_drift_holds ON floodmark.drift_holds (pipeline) WHERE released_at IS NULL;

CREATE TABLE IF NOT EXISTS floodmark.ended_stops (
    source   text        NOT NULL,
    since    timestamptz NOT NULL,
    reason   text        NOT NULL,
    ended_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (source, since)
);
COMMENT ON TABLE floodmark.ended_stops IS
    'Planned stops of a capture job, by their planned beginning, that were ended early or never begun';

-- Version 8: the database that a pipeline follows. Pipelines of an earlier version get theirs from their next run.
CREATE TABLE IF NOT EXISTS floodmark.followed_databases (
    pipeline          text        NOT NULL PRIMARY KEY,
    server_name       text        NOT NULL,
    database_name     text        NOT NULL,
    database_guid     uuid,
    group_database_id uuid,
    since             timestamptz NOT NULL DEFAULT now(),
    confirmed_by      text
);
COMMENT ON TABLE floodmark.followed_databases IS
    'The source database that the watermarks of a pipeline are positions of';
COMMENT ON COLUMN floodmark.followed_databases.database_guid IS
    'Survives renames, restores and failovers: a restored copy has it too';
COMMENT ON COLUMN floodmark.followed_databases.group_database_id IS
    'Within an availability group: the same on all of its replicas';
COMMENT ON COLUMN floodmark.followed_databases.confirmed_by IS
    'The operator who confirmed that the connection leads to another database; NULL where none had to';

-- Version 6: the verdict uses the server's term (capture).
UPDATE floodmark.verdicts SET verdict = 'not_captured_yet' WHERE verdict = 'not_harvested_yet';

-- Version 14: the present marks of all targets (floodmark.tables.target_mark). VACUUM FULL, CLUSTER and a change of a
-- type write a new file as well, so another mark is a reason to compare rows, and no more.
-- It shows no more than floodmark.tables does to the user who asks: rights on that table are enough to read it.
CREATE OR REPLACE VIEW floodmark.target_marks WITH (security_invoker = true) AS
SELECT t.pipeline, t.source_schema, t.source_name,
    concat_ws(' ', l.oid, l.relfilenode, c.oid, c.relfilenode) AS mark,
    array(
        SELECT a.attname::text FROM pg_catalog.pg_attribute AS a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    ) AS columns
FROM floodmark.tables AS t
JOIN pg_catalog.pg_class AS l ON l.oid = 'floodmark.tables'::regclass
JOIN pg_catalog.pg_namespace AS n ON n.nspname = t.target_schema
JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = t.target_name;
GRANT SELECT ON floodmark.target_marks TO PUBLIC;

-- Version 16: the tables of the source that the patterns of a pipeline match.
CREATE TABLE IF NOT EXISTS floodmark.pattern_tables (
    pipeline      text        NOT NULL,
    source_schema text        NOT NULL,
    source_name   text        NOT NULL,
    pattern       text        NOT NULL,
    state         text        NOT NULL
        CONSTRAINT known_state CHECK (state IN ('taken', 'known', 'new', 'clashing')),
    found_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, source_schema, source_name)
);
COMMENT ON TABLE floodmark.pattern_tables IS
    'The tables that match a pattern of pipelines.yaml, so that a pipeline has the same tables until the file says otherwise';
COMMENT ON COLUMN floodmark.pattern_tables.state IS
    'taken: a table of the pipeline; known: excluded, or with an entry of its own; new: it came later; clashing: another table fills its target';

-- Version 18: the receipts of forgotten keys.
CREATE TABLE IF NOT EXISTS floodmark.forgotten (
    forgotten_id  bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline      text        NOT NULL,
    source_schema text        NOT NULL,
    source_name   text        NOT NULL,
    target_schema text        NOT NULL,
    target_name   text        NOT NULL,
    lsn           floodmark.lsn,
    window_id     bigint      NOT NULL,
    counts        jsonb       NOT NULL,
    forgotten_by  text        NOT NULL,
    forgotten_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE floodmark.forgotten IS
    'One row for each key that was forgotten; it has neither the key nor a hash, by which a key could be found again';
COMMENT ON COLUMN floodmark.forgotten.lsn IS
    'The watermark then: no replay merges a change up to it again, which might bring the key back';
COMMENT ON COLUMN floodmark.forgotten.window_id IS 'The newest window of the table then';
COMMENT ON COLUMN floodmark.forgotten.counts IS 'What was deleted, by place';
