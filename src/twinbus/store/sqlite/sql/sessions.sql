-- name: session
-- A session's lock and head.
SELECT nonce, until_ms, head FROM session WHERE container = ? AND name = ?;

-- name: count_session
-- Add to the counters of a session that may be new.
INSERT INTO session (container, name, active, messages, served_ms)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (container, name) DO UPDATE
SET active = active + excluded.active, messages = messages + excluded.messages;

-- name: lower_session
-- Subtract from the counters of a session that is there.
UPDATE session SET active = active - ?, messages = messages - ?
WHERE container = ? AND name = ?;

-- name: drop_session
-- Forget a session that has neither messages nor a lock.
DELETE FROM session
WHERE container = ? AND name = ? AND messages = 0 AND nonce IS NULL;

-- name: waiting_session
-- Of the unlocked sessions with active messages, the one that waited longest.
SELECT served_ms, name FROM session INDEXED BY session_waiting
WHERE container = ? AND active > 0 AND nonce IS NULL
ORDER BY served_ms, name LIMIT 1;

-- name: ended_session
-- The same of sessions whose lock has ended but was not given back yet.
SELECT served_ms, name FROM session INDEXED BY session_until
WHERE until_ms <= ? AND container = ? AND active > 0
ORDER BY served_ms, name LIMIT 1;

-- name: lock_session
-- Lock a session that may be new.
INSERT INTO session (container, name, active, messages, served_ms, nonce, until_ms)
VALUES (?, ?, 0, 0, ?, ?, ?)
ON CONFLICT (container, name) DO UPDATE
SET served_ms = excluded.served_ms, nonce = excluded.nonce,
    until_ms = excluded.until_ms;

-- name: unlock_session
-- End a session lock.
UPDATE session SET served_ms = ?, nonce = NULL, until_ms = NULL, head = 0
WHERE container = ? AND name = ?;

-- name: renew_session
-- Move the end of a session lock.
UPDATE session SET until_ms = ? WHERE container = ? AND name = ?;

-- name: set_session_head
-- Note that a session has no ready message at or below a sequence number.
UPDATE session SET head = ? WHERE container = ? AND name = ?;

-- name: lower_session_head
-- Note that a session has a ready message above a sequence number.
UPDATE session SET head = min(head, ?) WHERE container = ? AND name = ?;

-- name: sessions_ended
-- Session locks whose end has come, earliest first.
SELECT container, name, nonce FROM session INDEXED BY session_until
WHERE until_ms <= ?
ORDER BY until_ms, container, name LIMIT ?;

-- name: session_state
-- The state of a session.
SELECT state FROM session_state WHERE container = ? AND name = ?;

-- name: put_session_state
-- Keep the state of a session.
INSERT INTO session_state (container, name, updated_ms, state) VALUES (?, ?, ?, ?)
ON CONFLICT (container, name) DO UPDATE
SET updated_ms = excluded.updated_ms, state = excluded.state;

-- name: delete_session_state
-- Forget the state of a session.
DELETE FROM session_state WHERE container = ? AND name = ?;

-- name: session_names
-- The sessions that have messages or state, in order of name.
SELECT name FROM session WHERE container = :container AND messages > 0
UNION
SELECT name FROM session_state WHERE container = :container
ORDER BY name LIMIT :top OFFSET :skip;

-- name: session_names_updated
-- The sessions whose state was set after a time, in order of name.
SELECT name FROM session_state
WHERE container = :container AND updated_ms > :after_ms
ORDER BY name LIMIT :top OFFSET :skip;

-- name: held_sessions
-- The sessions of a container that are locked.
SELECT name FROM session WHERE container = ? AND nonce IS NOT NULL;
