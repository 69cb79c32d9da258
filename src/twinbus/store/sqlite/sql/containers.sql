-- name: containers
-- All containers with their counters.
SELECT
    id, last_sequence, head, active, deferred, scheduled, size_bytes, accessed_ms,
    held_sessions
FROM container;

-- name: put_container
-- Write a container's counters back.
INSERT OR REPLACE INTO container (
    id, last_sequence, head, active, deferred, scheduled, size_bytes, accessed_ms,
    held_sessions
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: delete_container
-- Forget a container.
DELETE FROM container WHERE id = ?;

-- name: empty_messages
-- Forget the messages of a range of ids.
DELETE FROM message WHERE id >= ? AND id < ?;

-- name: empty_scheduled
-- Forget the scheduled messages of a range of ids.
DELETE FROM scheduled WHERE id >= ? AND id < ?;

-- name: empty_locks
-- Forget the locks of a range of ids.
DELETE FROM lock WHERE id >= ? AND id < ?;

-- name: empty_returned
-- Forget the returned messages of a range of ids.
DELETE FROM returned WHERE id >= ? AND id < ?;

-- name: first_messages
-- The ids of the first messages in a range of ids, in any state.
SELECT id FROM (
    SELECT id FROM message WHERE id >= :first AND id <= :last
    UNION ALL
    SELECT id FROM scheduled WHERE id >= :first AND id <= :last
) ORDER BY id LIMIT :limit;

-- name: some_session_states
-- Forget so many session states of a container.
DELETE FROM session_state WHERE (container, name) IN (
    SELECT container, name FROM session_state WHERE container = ? LIMIT ?
);

-- name: some_duplicates
-- Forget so much of the duplicate history of a container.
DELETE FROM duplicate WHERE (container, key) IN (
    SELECT container, key FROM duplicate WHERE container = ? LIMIT ?
);

-- name: empty_sessions
-- Forget the sessions of a range of containers.
DELETE FROM session WHERE container >= ? AND container < ?;

-- name: empty_session_states
-- Forget the session states of a range of containers.
DELETE FROM session_state WHERE container >= ? AND container < ?;

-- name: empty_duplicates
-- Forget the duplicate history of a range of containers.
DELETE FROM duplicate WHERE container >= ? AND container < ?;

-- name: held_messages
-- Active and deferred messages of a range of ids, the first ones, and their bytes.
SELECT
    coalesce(sum(state = 0), 0), coalesce(sum(state = 1), 0), coalesce(sum(size), 0)
FROM (
    SELECT state, length(head) + length(bare) AS size
    FROM message WHERE id >= ? AND id < ? LIMIT ?
) AS wanted;

-- name: held_scheduled
-- Scheduled messages of a range of ids, the first ones, and their bytes.
SELECT count(*), coalesce(sum(size), 0)
FROM (
    SELECT length(head) + length(bare) AS size
    FROM scheduled WHERE id >= ? AND id < ? LIMIT ?
) AS wanted;
