-- name: append_plain
-- Keep an active message without session and source; 1 << 62 is no expiry, 0 no origin.
INSERT INTO message (id, enqueued_ms, state, deliveries, expires_ms, origin, head, bare)
VALUES (?, ?, 0, ?, nullif(?, 4611686018427387904), nullif(?, 0), ?, ?);

-- name: append_message
-- Keep an active message.
INSERT INTO message (
    id, enqueued_ms, state, deliveries, expires_ms, session, origin, source, head, bare
) VALUES (?, ?, 0, ?, ?, ?, ?, ?, ?, ?);

-- name: append_scheduled
-- Keep a scheduled message.
INSERT INTO scheduled (
    id, enqueued_ms, deliveries, expires_ms, due_ms, session, origin, source, head, bare
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: ready_returned
-- Ready messages at or below the head of their container, in order.
SELECT
    id, enqueued_ms, state, deliveries, expires_ms, NULL, session, origin, source,
    head, bare
FROM returned CROSS JOIN message USING (id)
WHERE id > ? AND id <= ? AND (expires_ms IS NULL OR expires_ms > ?)
ORDER BY id LIMIT ?;

-- name: ready
-- Ready messages above the head of their container, in order, where no session is held.
SELECT
    id, enqueued_ms, state, deliveries, expires_ms, NULL, session, origin, source,
    head, bare
FROM message
WHERE id > ? AND id <= ? AND state = 0 AND (expires_ms IS NULL OR expires_ms > ?)
ORDER BY id LIMIT ?;

-- name: ready_unlocked
-- The same where sessions are held: their messages may be locked above the head.
SELECT
    id, enqueued_ms, state, deliveries, expires_ms, NULL, session, origin, source,
    head, bare
FROM message
WHERE id > ? AND id <= ? AND state = 0 AND (expires_ms IS NULL OR expires_ms > ?)
    AND NOT EXISTS (SELECT 1 FROM lock WHERE lock.id = message.id)
ORDER BY id LIMIT ?;

-- name: ready_in_session
-- Ready messages of a session above the session's head, in order.
SELECT
    id, enqueued_ms, state, deliveries, expires_ms, NULL, session, origin, source,
    head, bare
FROM message INDEXED BY message_session
WHERE session = ? AND state = 0 AND id > ? AND id <= ?
    AND (expires_ms IS NULL OR expires_ms > ?)
    AND NOT EXISTS (SELECT 1 FROM lock WHERE lock.id = message.id)
ORDER BY id LIMIT ?;

-- name: find
-- Messages in any state by their ids (a JSON array), in no order.
SELECT
    message.id, enqueued_ms, message.state, deliveries, expires_ms, NULL, session,
    origin, source, head, bare
FROM json_each(?) AS wanted CROSS JOIN message ON message.id = wanted.value
UNION ALL
SELECT
    scheduled.id, enqueued_ms, 2, deliveries, expires_ms, due_ms, session, origin,
    source, head, bare
FROM json_each(?) AS wanted CROSS JOIN scheduled ON scheduled.id = wanted.value;

-- name: peek
-- Messages in any state from an id on, in order, expired ones left out.
SELECT
    id, enqueued_ms, state, deliveries, expires_ms, NULL AS due_ms, session, origin,
    source, head, bare
FROM message
WHERE id >= :first AND id < :end AND (expires_ms IS NULL OR expires_ms > :now_ms)
UNION ALL
SELECT
    id, enqueued_ms, 2, deliveries, expires_ms, due_ms, session, origin, source, head,
    bare
FROM scheduled
WHERE id >= :first AND id < :end AND (expires_ms IS NULL OR expires_ms > :now_ms)
ORDER BY 1 LIMIT :limit;

-- name: peek_session
-- The same for the messages of one session.
SELECT
    id, enqueued_ms, state, deliveries, expires_ms, NULL AS due_ms, session, origin,
    source, head, bare
FROM message INDEXED BY message_session
WHERE session = :session AND state = 0 AND id >= :first AND id < :end
    AND (expires_ms IS NULL OR expires_ms > :now_ms)
UNION ALL
SELECT
    id, enqueued_ms, state, deliveries, expires_ms, NULL, session, origin, source,
    head, bare
FROM message INDEXED BY message_session
WHERE session = :session AND state = 1 AND id >= :first AND id < :end
    AND (expires_ms IS NULL OR expires_ms > :now_ms)
UNION ALL
SELECT
    id, enqueued_ms, 2, deliveries, expires_ms, due_ms, session, origin, source, head,
    bare
FROM scheduled INDEXED BY scheduled_session
WHERE session = :session AND id >= :first AND id < :end
    AND (expires_ms IS NULL OR expires_ms > :now_ms)
ORDER BY 1 LIMIT :limit;

-- name: sizes
-- What the counters need to know of messages that go, by their ids (a JSON array).
SELECT message.id, state, session, length(head) + length(bare)
FROM json_each(?) AS wanted CROSS JOIN message ON message.id = wanted.value
UNION ALL
SELECT scheduled.id, 2, session, length(head) + length(bare)
FROM json_each(?) AS wanted CROSS JOIN scheduled ON scheduled.id = wanted.value;

-- name: passed_over
-- Active, unlocked messages that expire after a time and up to another.
SELECT id, state, session, length(head) + length(bare)
FROM message INDEXED BY message_expires
WHERE expires_ms > ? AND expires_ms <= ? AND state = 0
    AND NOT EXISTS (SELECT 1 FROM lock WHERE lock.id = message.id);

-- name: replace_message
-- Give a message new bytes.
UPDATE message SET head = ?, bare = ? WHERE id = ?;

-- name: replace_scheduled
-- Give a scheduled message new bytes.
UPDATE scheduled SET head = ?, bare = ? WHERE id = ?;

-- name: set_deferred
-- Set a message aside.
UPDATE message SET state = 1 WHERE id = ?;

-- name: delete_messages
-- Forget active or deferred messages (a JSON array of ids).
DELETE FROM message WHERE id IN (SELECT value FROM json_each(?));

-- name: delete_message_run
-- Forget the messages from one id to another.
DELETE FROM message WHERE id BETWEEN ? AND ?;

-- name: delete_scheduled
-- Forget scheduled messages (a JSON array of ids).
DELETE FROM scheduled WHERE id IN (SELECT value FROM json_each(?));
