-- Two local times as positions of the log. Parameters: beginning and end, as ISO 8601 text.
DECLARE @begin datetime = CONVERT(datetime, ?, 126), @end datetime = CONVERT(datetime, ?, 126);

SELECT sys.fn_cdc_map_time_to_lsn(N'smallest greater than or equal', @begin) AS first_lsn,
    sys.fn_cdc_map_time_to_lsn(N'largest less than or equal', @end) AS last_lsn,
    sys.fn_cdc_map_time_to_lsn(N'largest less than', @begin) AS before_lsn,
    sys.fn_cdc_map_lsn_to_time(sys.fn_cdc_map_time_to_lsn(N'smallest greater than or equal', '17530101')) AS oldest_at,
    sys.fn_cdc_map_lsn_to_time(sys.fn_cdc_get_max_lsn()) AS newest_at;
