-- name: session
-- A session's lock and head.
SELECT nonce, until_ms, head FROM session WHERE container = %s AND name = %s;

-- name: count_session
-- Add to the counters of a session that may be new.
INSERT INTO session (container, name, active, messages, served_ms)
VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (container, name) DO UPDATE SET
    active = session.active + excluded.active,
    messages = session.messages + excluded.messages;

-- name: lower_session
-- Subtract from the counters of a session that is there.
UPDATE session SET active = active - %s, messages = messages - %s
WHERE container = %s AND name = %s;

-- name: drop_session
-- Forget a session that has neither messages nor a lock.
DELETE FROM session
WHERE container = %s AND name = %s AND messages = 0 AND nonce IS NULL;

-- name: waiting_session
-- Of the unlocked sessions with active messages, the one that waited longest.
SELECT served_ms, name FROM session
WHERE container = %s AND active > 0 AND nonce IS NULL
ORDER BY served_ms, name LIMIT 1;

-- name: ended_session
-- The same of sessions whose lock has ended but was not given back yet.
SELECT served_ms, name FROM session
WHERE until_ms <= %s AND container = %s AND active > 0
ORDER BY served_ms, name LIMIT 1;

-- name: lock_session
-- Lock a session that may be new.
INSERT INTO session (container, name, active, messages, served_ms, nonce, until_ms)
VALUES (%s, %s, 0, 0, %s, %s, %s)
ON CONFLICT (container, name) DO UPDATE
SET served_ms = excluded.served_ms, nonce = excluded.nonce,
    until_ms = excluded.until_ms;

-- name: unlock_session
-- End a session lock.
UPDATE session SET served_ms = %s, nonce = NULL, until_ms = NULL, head = 0
WHERE container = %s AND name = %s;

-- name: renew_session
-- Move the end of a session lock.
UPDATE session SET until_ms = %s WHERE container = %s AND name = %s;

-- name: set_session_head
-- Note that a session has no ready message at or below a sequence number.
UPDATE session SET head = %s WHERE container = %s AND name = %s;

-- name: lower_session_head
-- Note that a session has a ready message above a sequence number.
UPDATE session SET head = least(head, %s) WHERE container = %s AND name = %s;

-- name: sessions_ended
-- Session locks whose end has come, earliest first.
SELECT container, name, nonce FROM session
WHERE until_ms <= %s
ORDER BY until_ms, container, name LIMIT %s;

-- name: session_state
-- The state of a session.
SELECT state FROM session_state WHERE container = %s AND name = %s;

-- name: put_session_state
-- Keep the state of a session.
INSERT INTO session_state (container, name, updated_ms, state) VALUES (%s, %s, %s, %s)
ON CONFLICT (container, name) DO UPDATE
SET updated_ms = excluded.updated_ms, state = excluded.state;

-- name: delete_session_state
-- Forget the state of a session.
DELETE FROM session_state WHERE container = %s AND name = %s;

-- name: session_names
-- The sessions that have messages or state, in order of name.
SELECT name FROM session WHERE container = %(container)s AND messages > 0
UNION
SELECT name FROM session_state WHERE container = %(container)s
ORDER BY name LIMIT %(top)s OFFSET %(skip)s;

-- name: session_names_updated
-- The sessions whose state was set after a time, in order of name.
SELECT name FROM session_state
WHERE container = %(container)s AND updated_ms > %(after_ms)s
ORDER BY name LIMIT %(top)s OFFSET %(skip)s;

-- name: held_sessions
-- The sessions of a container that are locked.
SELECT name FROM session WHERE container = %s AND nonce IS NOT NULL;
