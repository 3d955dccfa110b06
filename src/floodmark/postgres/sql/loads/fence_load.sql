-- The window's row stays locked until the transaction ends, so that no later attempt begins meanwhile.
SELECT attempt, state FROM floodmark.windows WHERE window_id = {window_id} FOR SHARE
