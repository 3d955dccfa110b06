-- The table that a foreign key refers to.
SELECT namespace.nspname, class.relname
FROM pg_constraint
JOIN pg_class AS class ON class.oid = pg_constraint.confrelid
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE pg_constraint.conname = %(constraint)s AND pg_constraint.conrelid = to_regclass(%(table)s)
