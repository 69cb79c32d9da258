-- name: expired
-- Messages past their time that are not locked, earliest first.
SELECT
    id, enqueued_ms, state, deliveries, expires_ms, NULL AS due_ms, session, origin,
    source, head, bare
FROM message INDEXED BY message_expires
WHERE expires_ms > :after_ms AND expires_ms <= :now_ms
    AND NOT EXISTS (SELECT 1 FROM lock WHERE lock.id = message.id)
UNION ALL
SELECT
    id, enqueued_ms, 2, deliveries, expires_ms, due_ms, session, origin, source, head,
    bare
FROM scheduled INDEXED BY scheduled_expires
WHERE expires_ms > :after_ms AND expires_ms <= :now_ms
ORDER BY 5, 1 LIMIT :limit;

-- name: due
-- Scheduled messages whose time has come, earliest first.
SELECT
    id, enqueued_ms, 2, deliveries, expires_ms, due_ms, session, origin, source, head,
    bare
FROM scheduled INDEXED BY scheduled_due
WHERE due_ms > ? AND due_ms <= ?
ORDER BY due_ms, id LIMIT ?;

-- name: postponed_sizes
-- The first messages above an id with exactly this time, and their bytes.
SELECT id, length(head) + length(bare)
FROM scheduled INDEXED BY scheduled_due
WHERE due_ms = ? AND id > ?
ORDER BY id LIMIT ?;

-- name: postponed
-- The messages above an id and up to another with exactly this time.
SELECT
    id, enqueued_ms, 2, deliveries, expires_ms, due_ms, session, origin, source, head,
    bare
FROM scheduled INDEXED BY scheduled_due
WHERE due_ms = ? AND id > ? AND id <= ?
ORDER BY id;

-- name: is_postponing
-- Whether messages of a range have exactly this time.
SELECT 1 FROM scheduled INDEXED BY scheduled_due
WHERE due_ms = ? AND id >= ? AND id < ? LIMIT 1;

-- name: next_waits
-- How long until the first lock, session lock, message and schedule end.
SELECT
    (
        SELECT min(until_ms) FROM (
            SELECT min(until_ms) AS until_ms FROM lock
            WHERE until_ms < 4611686018427387904
            UNION ALL
            SELECT min(until_ms) FROM pack_lock
        )
    ) - :steady_ms,
    (SELECT min(until_ms) FROM session WHERE until_ms IS NOT NULL) - :steady_ms,
    (SELECT min(expires_ms) FROM message WHERE expires_ms > :after_ms) - :wall_ms,
    (SELECT min(expires_ms) FROM scheduled WHERE expires_ms > :after_ms) - :wall_ms,
    (SELECT min(due_ms) FROM scheduled) - :wall_ms;

-- name: cut_locks
-- Let no lock of a single message end after a time.
UPDATE lock SET until_ms = :until_ms
WHERE until_ms > :until_ms AND until_ms < 4611686018427387904;

-- name: cut_session_locks
-- Let no session lock end after a time.
UPDATE session SET until_ms = :until_ms WHERE until_ms > :until_ms;
