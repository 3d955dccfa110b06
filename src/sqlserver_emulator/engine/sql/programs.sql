-- What the catalog keeps of functions, triggers and sequences. Run at every start, so that older data folders get it too.

-- A user's function: parameters as in emulator.inline_functions, each with "default_sql" where it has a default.
-- returns: the type of a scalar function ({"type": …, "length": …}), NULL for one that gives a table.
CREATE TABLE IF NOT EXISTS emulator.functions (
    object_id int PRIMARY KEY REFERENCES emulator.objects ON DELETE CASCADE,
    postgres_function text NOT NULL,
    parameters jsonb NOT NULL,
    returns jsonb,
    is_volatile boolean NOT NULL DEFAULT false
);

-- The columns of an inline function with their declared types: [{"name": …, "type": …, "length": …, "nullable": …}].
ALTER TABLE emulator.inline_functions ADD COLUMN IF NOT EXISTS columns jsonb NOT NULL DEFAULT '[]';
