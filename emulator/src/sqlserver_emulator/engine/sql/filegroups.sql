-- Filegroups and files that were added to databases: names and sizes only, since PostgreSQL keeps the data in one place.
-- PRIMARY is data space 1; it has no row here, and neither have files 1 and 2 that CREATE DATABASE did not name.

CREATE TABLE IF NOT EXISTS emulator.filegroups (
    database_id int NOT NULL REFERENCES emulator.databases ON DELETE CASCADE,
    data_space_id int NOT NULL,
    name varchar(128) NOT NULL,
    is_default boolean NOT NULL DEFAULT false,
    PRIMARY KEY (database_id, data_space_id)
);

-- Sizes are in pages of 8 KB; data_space_id 0: a log file.
CREATE TABLE IF NOT EXISTS emulator.files (
    database_id int NOT NULL REFERENCES emulator.databases ON DELETE CASCADE,
    file_id int NOT NULL,
    data_space_id int NOT NULL,
    name varchar(128) NOT NULL,
    physical_name varchar(260) NOT NULL,
    size int NOT NULL,
    max_size int NOT NULL,
    growth int NOT NULL,
    is_percent_growth boolean NOT NULL,
    PRIMARY KEY (database_id, file_id)
);
GRANT SELECT ON emulator.filegroups, emulator.files TO PUBLIC;
