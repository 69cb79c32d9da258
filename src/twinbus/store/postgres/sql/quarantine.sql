-- name: quarantined
-- How many messages are in quarantine.
SELECT count(*) FROM quarantine;

-- name: quarantine_message
-- Copy an active or deferred message.
INSERT INTO quarantine
SELECT
    id, %s, enqueued_ms, state, deliveries, expires_ms, NULL, session, origin, source,
    head, bare
FROM kept WHERE id = %s
ON CONFLICT (id) DO UPDATE SET reason = excluded.reason;

-- name: quarantine_scheduled
-- Copy a scheduled message.
INSERT INTO quarantine
SELECT
    id, %s, enqueued_ms, 2, deliveries, expires_ms, due_ms, session, origin, source, head,
    bare
FROM scheduled WHERE id = %s
ON CONFLICT (id) DO UPDATE SET reason = excluded.reason;

-- name: quarantined_counters
-- What the counters need to know of a message in quarantine, without its session.
SELECT state, octet_length(head) + octet_length(bare), session IS NOT NULL
FROM quarantine WHERE id = %s;

-- name: lower_quarantined_session
-- Subtract from the counters of the session of a message in quarantine.
UPDATE session SET active = active - %s, messages = messages - 1
WHERE container = %s AND name = (SELECT session FROM quarantine WHERE id = %s)
RETURNING 1;

-- name: recount_sessions
-- Count the messages of all sessions of a container anew, which spans a range of ids.
UPDATE session SET
    active = (
        SELECT count(*) FROM kept
        WHERE kept.session = name AND state = 0 AND id BETWEEN %(first)s AND %(last)s
    ),
    messages = (
        SELECT count(*) FROM message
        WHERE message.session = name AND id BETWEEN %(first)s AND %(last)s
    ) + (
        SELECT count(*) FROM scheduled
        WHERE scheduled.session = name AND id BETWEEN %(first)s AND %(last)s
    )
WHERE container = %(container)s;

-- name: drop_empty_sessions
-- Forget the sessions of a container that have neither messages nor a lock.
DELETE FROM session WHERE container = %s AND messages = 0 AND nonce IS NULL;
