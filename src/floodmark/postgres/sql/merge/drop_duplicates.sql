-- Leave one row of each key in a staging table. Placeholders: staging and the columns of the key, quoted.
DELETE FROM {staging} AS twin
USING (SELECT ctid, row_number() OVER (PARTITION BY {key}) AS number FROM {staging}) AS counted
WHERE twin.ctid = counted.ctid AND counted.number > 1
