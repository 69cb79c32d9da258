-- name: append_plain
-- Keep active messages without session and source; 1 << 62 is no expiry, 0 no origin.
INSERT INTO message (id, enqueued_ms, deliveries, expires_ms, origin, head, bare)
SELECT
    id, enqueued_ms, deliveries, nullif(expires_ms, 4611686018427387904),
    nullif(origin, 0), head, bare
FROM unnest(
    %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[],
    %b::bytea[]
) AS sent (id, enqueued_ms, deliveries, expires_ms, origin, head, bare);

-- name: append_message
-- Keep active messages.
INSERT INTO message (
    id, enqueued_ms, deliveries, expires_ms, session, origin, source, head, bare
)
SELECT * FROM unnest(
    %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::text[], %b::bigint[],
    %b::text[], %b::bytea[], %b::bytea[]
);

-- name: append_scheduled
-- Keep scheduled messages.
INSERT INTO scheduled (
    id, enqueued_ms, deliveries, expires_ms, due_ms, session, origin, source, head, bare
)
SELECT * FROM unnest(
    %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::text[],
    %b::bigint[], %b::text[], %b::bytea[], %b::bytea[]
);

-- name: ready_returned
-- Ready messages at or below the head of their container, in order.
SELECT kept.* FROM returned JOIN kept ON kept.id = returned.id
WHERE returned.id > %s AND returned.id <= %s
    AND (expires_ms IS NULL OR expires_ms > %s)
ORDER BY returned.id LIMIT %s;

-- name: ready
-- Ready messages above the head of their container, in order, where no session is held.
SELECT * FROM kept
WHERE id > %s AND id <= %s AND state = 0 AND (expires_ms IS NULL OR expires_ms > %s)
ORDER BY id LIMIT %s;

-- name: ready_unlocked
-- The same where sessions are held: their messages may be locked above the head.
SELECT * FROM kept
WHERE id > %s AND id <= %s AND state = 0 AND (expires_ms IS NULL OR expires_ms > %s)
    AND NOT EXISTS (SELECT 1 FROM lock WHERE lock.id = kept.id)
ORDER BY id LIMIT %s;

-- name: ready_in_session
-- Ready messages of a session above the session's head, in order.
SELECT * FROM kept
WHERE session = %s AND state = 0 AND id > %s AND id <= %s
    AND (expires_ms IS NULL OR expires_ms > %s)
    AND NOT EXISTS (SELECT 1 FROM lock WHERE lock.id = kept.id)
ORDER BY id LIMIT %s;

-- name: find
-- Messages in any state by their ids (an array), in no order.
SELECT * FROM kept WHERE id = ANY(%s::bigint[])
UNION ALL
SELECT * FROM planned WHERE id = ANY(%s::bigint[]);

-- name: peek
-- Messages in any state from an id on, in order, expired ones left out.
(
    SELECT * FROM kept
    WHERE id >= %(first)s AND id < %(end)s
        AND (expires_ms IS NULL OR expires_ms > %(now_ms)s)
    ORDER BY id LIMIT %(limit)s
) UNION ALL (
    SELECT * FROM planned
    WHERE id >= %(first)s AND id < %(end)s
        AND (expires_ms IS NULL OR expires_ms > %(now_ms)s)
    ORDER BY id LIMIT %(limit)s
) ORDER BY id LIMIT %(limit)s;

-- name: peek_session
-- The same for the messages of one session.
(
    SELECT * FROM kept
    WHERE session = %(session)s AND id >= %(first)s AND id < %(end)s
        AND (expires_ms IS NULL OR expires_ms > %(now_ms)s)
    ORDER BY id LIMIT %(limit)s
) UNION ALL (
    SELECT * FROM planned
    WHERE session = %(session)s AND id >= %(first)s AND id < %(end)s
        AND (expires_ms IS NULL OR expires_ms > %(now_ms)s)
    ORDER BY id LIMIT %(limit)s
) ORDER BY id LIMIT %(limit)s;

-- name: sizes
-- What the counters need to know of messages that go, by their ids (an array).
SELECT id, state, session, octet_length(head) + octet_length(bare)
FROM kept WHERE id = ANY(%s::bigint[])
UNION ALL
SELECT id, 2, session, octet_length(head) + octet_length(bare)
FROM scheduled WHERE id = ANY(%s::bigint[]);

-- name: passed_over
-- Active, unlocked messages that expire after a time and up to another.
SELECT id, state, session, octet_length(head) + octet_length(bare)
FROM kept
WHERE expires_ms > %s AND expires_ms <= %s AND state = 0
    AND NOT EXISTS (SELECT 1 FROM lock WHERE lock.id = kept.id);

-- name: replace_message
-- Give a message new bytes.
UPDATE message SET head = %s, bare = %s WHERE id = %s;

-- name: replace_scheduled
-- Give a scheduled message new bytes.
UPDATE scheduled SET head = %s, bare = %s WHERE id = %s;

-- name: set_deferred
-- Set a message aside.
INSERT INTO mark (id, deliveries, state) VALUES (%s, 0, 1)
ON CONFLICT (id) DO UPDATE SET state = 1;

-- name: delete_messages
-- Forget active or deferred messages (an array of ids), with their marks.
WITH ids AS (SELECT %s::bigint[] AS wanted),
gone AS (DELETE FROM message WHERE id = ANY((SELECT wanted FROM ids)::bigint[]))
DELETE FROM mark WHERE id = ANY((SELECT wanted FROM ids)::bigint[]);

-- name: delete_message_run
-- Forget the messages from one id to another, with their marks.
WITH ids AS (SELECT %s::bigint AS first, %s::bigint AS last),
gone AS (DELETE FROM message USING ids WHERE id BETWEEN first AND last)
DELETE FROM mark USING ids WHERE id BETWEEN first AND last;

-- name: delete_scheduled
-- Forget scheduled messages (an array of ids).
DELETE FROM scheduled WHERE id = ANY(%s::bigint[]);
