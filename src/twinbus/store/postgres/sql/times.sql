-- name: expired
-- Messages past their time that are not locked, earliest first.
(
    SELECT * FROM kept
    WHERE expires_ms > %(after_ms)s AND expires_ms <= %(now_ms)s
        AND NOT EXISTS (SELECT 1 FROM lock WHERE lock.id = kept.id)
    ORDER BY expires_ms, id LIMIT %(limit)s
) UNION ALL (
    SELECT * FROM planned
    WHERE expires_ms > %(after_ms)s AND expires_ms <= %(now_ms)s
    ORDER BY expires_ms, id LIMIT %(limit)s
) ORDER BY expires_ms, id LIMIT %(limit)s;

-- name: due
-- Scheduled messages whose time has come, earliest first.
SELECT * FROM planned WHERE due_ms > %s AND due_ms <= %s ORDER BY due_ms, id LIMIT %s;

-- name: postponed_sizes
-- The first messages above an id with exactly this time, and their bytes.
SELECT id, length(head) + length(bare) FROM scheduled
WHERE due_ms = %s AND id > %s ORDER BY id LIMIT %s;

-- name: postponed
-- The messages above an id and up to another with exactly this time.
SELECT * FROM planned WHERE due_ms = %s AND id > %s AND id <= %s ORDER BY id;

-- name: is_postponing
-- Whether messages of a range have exactly this time.
SELECT 1 FROM scheduled WHERE due_ms = %s AND id >= %s AND id < %s LIMIT 1;

-- name: next_waits
-- How long until the first lock, session lock, message and schedule end.
SELECT
    (
        SELECT min(until_ms) FROM lock
        WHERE until_ms > %(swept_ms)s AND until_ms < 4611686018427387904
    ) - %(steady_ms)s,
    (SELECT min(until_ms) FROM session WHERE until_ms IS NOT NULL) - %(steady_ms)s,
    (SELECT min(expires_ms) FROM message WHERE expires_ms > %(after_ms)s)
        - %(wall_ms)s,
    (SELECT min(expires_ms) FROM scheduled WHERE expires_ms > %(after_ms)s)
        - %(wall_ms)s,
    (SELECT min(due_ms) FROM scheduled) - %(wall_ms)s;

-- name: cut_locks
-- Let no lock of a single message end after a time.
UPDATE lock SET until_ms = %(until_ms)s
WHERE until_ms > %(until_ms)s AND until_ms < 4611686018427387904;

-- name: cut_session_locks
-- Let no session lock end after a time.
UPDATE session SET until_ms = %(until_ms)s WHERE until_ms > %(until_ms)s;
