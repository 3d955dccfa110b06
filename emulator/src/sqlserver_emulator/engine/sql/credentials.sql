-- The master key of a database and its scoped credentials: that they are there, and whose they are.
-- A secret is as it was given. No view shows it; the folder of the data is the user's own.

CREATE TABLE IF NOT EXISTS emulator.master_keys (
    database_id int PRIMARY KEY REFERENCES emulator.databases ON DELETE CASCADE,
    created_at timestamp(3) NOT NULL DEFAULT emulator.now(),
    modified_at timestamp(3) NOT NULL DEFAULT emulator.now()
);

CREATE TABLE IF NOT EXISTS emulator.credentials (
    database_id int NOT NULL REFERENCES emulator.databases ON DELETE CASCADE,
    credential_id int NOT NULL,
    name varchar(128) NOT NULL,
    identity varchar(4000) NOT NULL,
    created_at timestamp(3) NOT NULL DEFAULT emulator.now(),
    modified_at timestamp(3) NOT NULL DEFAULT emulator.now(),
    PRIMARY KEY (database_id, credential_id)
);
ALTER TABLE emulator.credentials ADD COLUMN IF NOT EXISTS secret text;
