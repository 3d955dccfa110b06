-- The CDC states that SSIS keeps, with the name of each. The name of the table is quoted.
SELECT name, state FROM {table}
