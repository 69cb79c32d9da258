-- name: quarantined
-- How many messages are in quarantine.
SELECT count(*) FROM quarantine;

-- name: quarantine_message
-- Copy an active or deferred message.
INSERT OR REPLACE INTO quarantine
SELECT
    id, ?, enqueued_ms, state, deliveries, expires_ms, NULL, session, origin, source,
    head, bare
FROM message WHERE id = ?;

-- name: quarantine_scheduled
-- Copy a scheduled message.
INSERT OR REPLACE INTO quarantine
SELECT
    id, ?, enqueued_ms, 2, deliveries, expires_ms, due_ms, session, origin, source, head,
    bare
FROM scheduled WHERE id = ?;

-- name: quarantined_counters
-- What the counters need to know of a message in quarantine, without its session.
SELECT state, length(head) + length(bare), typeof(session) != 'null'
FROM quarantine WHERE id = ?;

-- name: lower_quarantined_session
-- Subtract from the counters of the session of a message in quarantine.
UPDATE session SET active = active - ?, messages = messages - 1
WHERE container = ? AND name = (SELECT session FROM quarantine WHERE id = ?);

-- name: recount_sessions
-- Count the messages of all sessions of a container anew, which spans a range of ids.
UPDATE session SET
    active = (
        SELECT count(*) FROM message INDEXED BY message_session
        WHERE session = name AND state = 0 AND id BETWEEN :first AND :last
    ),
    messages = (
        SELECT count(*) FROM message INDEXED BY message_session
        WHERE session = name AND id BETWEEN :first AND :last
    ) + (
        SELECT count(*) FROM scheduled INDEXED BY scheduled_session
        WHERE session = name AND id BETWEEN :first AND :last
    )
WHERE container = :container;

-- name: drop_empty_sessions
-- Forget the sessions of a container that have neither messages nor a lock.
DELETE FROM session WHERE container = ? AND messages = 0 AND nonce IS NULL;
