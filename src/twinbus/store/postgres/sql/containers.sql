-- name: containers
-- All containers with their counters, as of the last fold.
SELECT
    id, last_sequence, head, active, deferred, scheduled, size_bytes, accessed_ms,
    held_sessions
FROM container;

-- name: put_container
-- Write the counters of containers back.
INSERT INTO container (
    id, last_sequence, head, active, deferred, scheduled, size_bytes, accessed_ms,
    held_sessions
)
SELECT * FROM unnest(
    %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[],
    %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[]
)
ON CONFLICT (id) DO UPDATE SET
    last_sequence = excluded.last_sequence, head = excluded.head,
    active = excluded.active, deferred = excluded.deferred,
    scheduled = excluded.scheduled, size_bytes = excluded.size_bytes,
    accessed_ms = excluded.accessed_ms, held_sessions = excluded.held_sessions;

-- name: delete_container
-- Forget containers.
DELETE FROM container WHERE id = ANY(%s::bigint[]);

-- name: empty_messages
-- Forget the messages of a range of ids, with their marks.
WITH ids AS (SELECT %s::bigint AS first, %s::bigint AS after),
gone AS (DELETE FROM message USING ids WHERE id >= first AND id < after)
DELETE FROM mark USING ids WHERE id >= first AND id < after;

-- name: empty_scheduled
-- Forget the scheduled messages of a range of ids.
DELETE FROM scheduled WHERE id >= %s AND id < %s;

-- name: empty_locks
-- Forget the locks of a range of ids.
DELETE FROM lock WHERE id >= %s AND id < %s;

-- name: empty_returned
-- Forget the returned messages of a range of ids.
DELETE FROM returned WHERE id >= %s AND id < %s;

-- name: first_messages
-- The ids of the first messages in a range of ids, in any state.
(
    SELECT id FROM message WHERE id >= %(first)s AND id <= %(last)s
    ORDER BY id LIMIT %(limit)s
) UNION ALL (
    SELECT id FROM scheduled WHERE id >= %(first)s AND id <= %(last)s
    ORDER BY id LIMIT %(limit)s
) ORDER BY id LIMIT %(limit)s;

-- name: some_session_states
-- Forget so many session states of a container.
DELETE FROM session_state WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM session_state WHERE container = %s LIMIT %s
)) RETURNING 1;

-- name: some_duplicates
-- Forget so much of the duplicate history of a container.
DELETE FROM duplicate WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM duplicate WHERE container = %s LIMIT %s
)) RETURNING 1;

-- name: empty_sessions
-- Forget the sessions of a range of containers.
DELETE FROM session WHERE container >= %s AND container < %s;

-- name: empty_session_states
-- Forget the session states of a range of containers.
DELETE FROM session_state WHERE container >= %s AND container < %s;

-- name: empty_duplicates
-- Forget the duplicate history of a range of containers.
DELETE FROM duplicate WHERE container >= %s AND container < %s;

-- name: held_messages
-- Active and deferred messages of a range of ids, the first ones, and their bytes.
SELECT
    count(*) FILTER (WHERE state = 0), count(*) FILTER (WHERE state = 1),
    coalesce(sum(size), 0)
FROM (
    SELECT state, octet_length(head) + octet_length(bare) AS size
    FROM kept WHERE id >= %s AND id < %s LIMIT %s
) AS wanted;

-- name: held_scheduled
-- Scheduled messages of a range of ids, the first ones, and their bytes.
SELECT count(*), coalesce(sum(size), 0)
FROM (
    SELECT octet_length(head) + octet_length(bare) AS size
    FROM scheduled WHERE id >= %s AND id < %s LIMIT %s
) AS wanted;
