-- name: insert_locks
-- Lock messages (an array of ids).
INSERT INTO lock (nonce, until_ms, id) SELECT %s, %s, unnest(%s::bigint[]);

-- name: delete_locks
-- Unlock messages (an array of ids).
DELETE FROM lock WHERE id = ANY(%s::bigint[]);

-- name: delete_lock_run
-- Unlock the messages from one id to another.
DELETE FROM lock WHERE id BETWEEN %s AND %s;

-- name: held_run
-- How many active messages without a session are held by one nonce, and their bytes.
SELECT count(*), sum(octet_length(head) + octet_length(bare))
FROM lock JOIN kept ON kept.id = lock.id
WHERE lock.id BETWEEN %s AND %s AND nonce = %s AND until_ms > %s AND state = 0
    AND session IS NULL;

-- name: renew_lock
-- Move the end of a lock.
UPDATE lock SET until_ms = %s WHERE id = %s;

-- name: holds
-- Locks with what their end needs to know of the message (an array of ids).
SELECT
    lock.id, nonce, until_ms, state, session, octet_length(head) + octet_length(bare),
    deliveries, expires_ms
FROM lock JOIN kept ON kept.id = lock.id
WHERE lock.id = ANY(%s::bigint[]);

-- name: holds_of_session
-- The same for the locks that belong to a session lock, in order.
SELECT
    lock.id, nonce, until_ms, state, session, octet_length(head) + octet_length(bare),
    deliveries, expires_ms
FROM lock JOIN kept ON kept.id = lock.id
WHERE nonce = %s AND until_ms = 4611686018427387904
ORDER BY lock.id;

-- name: holds_ended
-- The same for locks of single messages whose end has come, earliest first.
SELECT
    lock.id, nonce, until_ms, state, session, octet_length(head) + octet_length(bare),
    deliveries, expires_ms
FROM lock JOIN kept ON kept.id = lock.id
WHERE until_ms > %s AND until_ms <= %s AND until_ms < 4611686018427387904
ORDER BY until_ms, lock.id LIMIT %s;

-- name: ids_ended
-- The messages of these locks alone.
SELECT lock.id FROM lock JOIN message ON message.id = lock.id
WHERE until_ms <= %s AND until_ms < 4611686018427387904
ORDER BY until_ms, lock.id LIMIT %s;

-- name: count_deliveries
-- Note that deliveries ended without a settlement (an array of ids).
INSERT INTO mark (id, deliveries, state) SELECT unnest(%s::bigint[]), 1, 0
ON CONFLICT (id) DO UPDATE SET deliveries = mark.deliveries + 1;

-- name: insert_returned
-- Note that messages at or below the head are ready again (an array of ids).
INSERT INTO returned (id) SELECT unnest(%s::bigint[]);

-- name: delete_returned
-- Note that they are no longer.
DELETE FROM returned WHERE id = ANY(%s::bigint[]);
