-- The switches in progress, or the one with the given id.
SELECT s.*,
    coalesce(
        (
            SELECT jsonb_agg(
                jsonb_build_object(
                    'pipeline', p.pipeline, 'watermark', '0x' || upper(encode(p.watermark, 'hex')),
                    'window_id', p.window_id, 'window_state', w.state
                )
                ORDER BY p.pipeline
            )
            FROM floodmark.switched_pipelines AS p
            LEFT JOIN floodmark.windows AS w ON w.window_id = p.window_id
            WHERE p.switch_id = s.switch_id
        ),
        '[]'
    ) AS pipelines
FROM floodmark.instance_switches AS s
WHERE s.source = %(source)s
  AND CASE WHEN %(switch_id)s::bigint IS NULL THEN s.state IN ('approved', 'made') ELSE s.switch_id = %(switch_id)s END
ORDER BY s.switch_id
