-- name: outbox_targets
-- What the outbox has for each target, as of the last fold.
SELECT target, rows, size_bytes, last_number FROM outbox_target;

-- name: put_outbox_target
-- Write the counters of targets back.
INSERT INTO outbox_target (target, rows, size_bytes, last_number)
SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[])
ON CONFLICT (target) DO UPDATE SET
    rows = excluded.rows, size_bytes = excluded.size_bytes,
    last_number = excluded.last_number;

-- name: applied_sources
-- What was applied of each other store's outbox, as of the last fold.
SELECT source, number FROM applied;

-- name: put_applied
-- Note the last numbers that were applied of sources.
INSERT INTO applied (source, number)
SELECT * FROM unnest(%b::bigint[], %b::bigint[])
ON CONFLICT (source) DO UPDATE SET number = excluded.number;

-- name: post
-- Keep a row of the outbox.
INSERT INTO outbox (target, number, kind, body) VALUES (%s, %s, %s, %s);

-- name: posted_sizes
-- The first rows for a target, without their bodies.
SELECT number, octet_length(body) FROM outbox
WHERE target = %s ORDER BY number LIMIT %s;

-- name: posted
-- The rows for a target up to a number.
SELECT number, kind, body FROM outbox
WHERE target = %s AND number <= %s ORDER BY number;

-- name: posted_bytes
-- The kinds of all rows for a target, and the bytes of their bodies.
SELECT kind, octet_length(body) FROM outbox WHERE target = %s;

-- name: posted_total
-- How many rows for a target there are up to a number, and the bytes of their bodies.
SELECT count(*), coalesce(sum(octet_length(body)), 0) FROM outbox
WHERE target = %s AND number <= %s;

-- name: forget_posted
-- Forget the rows for a target up to a number.
DELETE FROM outbox WHERE target = %s AND number <= %s;

-- name: mirrored
-- The entities that other stores hold, in order of store and key.
SELECT shard, id, kind, key, body, created_ms, updated_ms FROM mirror
ORDER BY shard, key;

-- name: mirror
-- Keep an entity that another store holds.
INSERT INTO mirror (shard, id, kind, key, body, created_ms, updated_ms)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (shard, key) DO UPDATE SET
    id = excluded.id, kind = excluded.kind, body = excluded.body,
    created_ms = excluded.created_ms, updated_ms = excluded.updated_ms;

-- name: unmirror
-- Forget an entity that another store held.
DELETE FROM mirror WHERE shard = %s AND key = %s;
