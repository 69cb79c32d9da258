-- name: insert_locks
-- Lock messages (a JSON array of ids).
INSERT INTO lock (id, nonce, until_ms) SELECT value, ?, ? FROM json_each(?);

-- name: delete_locks
-- Unlock messages (a JSON array of ids).
DELETE FROM lock WHERE id IN (SELECT value FROM json_each(?));

-- name: delete_lock_run
-- Unlock the messages from one id to another.
DELETE FROM lock WHERE id BETWEEN ? AND ?;

-- name: held_run
-- How many active messages without a session are held by one nonce, and their bytes.
SELECT count(*), sum(length(head) + length(bare))
FROM lock CROSS JOIN message USING (id)
WHERE id BETWEEN ? AND ? AND nonce = ? AND until_ms > ? AND state = 0
    AND session IS NULL;

-- name: renew_lock
-- Move the end of a lock.
UPDATE lock SET until_ms = ? WHERE id = ?;

-- name: holds
-- Locks with what their end needs to know of the message (a JSON array of ids).
SELECT
    lock.id, nonce, until_ms, state, session, length(head) + length(bare), deliveries,
    expires_ms
FROM json_each(?) AS wanted
CROSS JOIN lock ON lock.id = wanted.value
CROSS JOIN message ON message.id = lock.id;

-- name: holds_of_session
-- The same for the locks that belong to a session lock, in order.
SELECT
    lock.id, nonce, until_ms, state, session, length(head) + length(bare), deliveries,
    expires_ms
FROM lock INDEXED BY lock_nonce
CROSS JOIN message ON message.id = lock.id
WHERE nonce = ? AND until_ms = 4611686018427387904
ORDER BY lock.id;

-- name: holds_ended
-- The same for locks of single messages whose end has come, earliest first.
SELECT
    lock.id, nonce, until_ms, state, session, length(head) + length(bare), deliveries,
    expires_ms
FROM lock INDEXED BY lock_until
CROSS JOIN message ON message.id = lock.id
WHERE until_ms <= ? AND until_ms < 4611686018427387904
ORDER BY until_ms, lock.id LIMIT ?;

-- name: ids_ended
-- The messages of these locks alone.
SELECT lock.id FROM lock INDEXED BY lock_until
CROSS JOIN message ON message.id = lock.id
WHERE until_ms <= ? AND until_ms < 4611686018427387904
ORDER BY until_ms, lock.id LIMIT ?;

-- name: count_deliveries
-- Note that deliveries ended without a settlement (a JSON array of ids).
UPDATE message SET deliveries = deliveries + 1
WHERE id IN (SELECT value FROM json_each(?));

-- name: insert_returned
-- Note that messages at or below the head are ready again (a JSON array of ids).
INSERT INTO returned (id) SELECT value FROM json_each(?);

-- name: delete_returned
-- Note that they are no longer.
DELETE FROM returned WHERE id IN (SELECT value FROM json_each(?));
