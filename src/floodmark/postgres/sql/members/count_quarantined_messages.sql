SELECT reason, count(*) AS messages
FROM floodmark.quarantined_messages
WHERE pipeline = %(pipeline)s
GROUP BY reason ORDER BY messages DESC, reason
