-- name: outbox_targets
-- What the outbox has for each target.
SELECT target, rows, size_bytes, last_number FROM outbox_target;

-- name: put_outbox_target
-- Write the counters of a target back.
INSERT OR REPLACE INTO outbox_target (target, rows, size_bytes, last_number)
VALUES (?, ?, ?, ?);

-- name: applied_sources
-- What was applied of each other store's outbox.
SELECT source, number FROM applied;

-- name: put_applied
-- Note the last number that was applied of a source.
INSERT OR REPLACE INTO applied (source, number) VALUES (?, ?);

-- name: post
-- Keep a row of the outbox.
INSERT INTO outbox (target, number, kind, body) VALUES (?, ?, ?, ?);

-- name: posted_sizes
-- The first rows for a target, without their bodies.
SELECT number, length(body) FROM outbox WHERE target = ? ORDER BY number LIMIT ?;

-- name: posted
-- The rows for a target up to a number.
SELECT number, kind, body FROM outbox
WHERE target = ? AND number <= ? ORDER BY number;

-- name: posted_bytes
-- The kinds of all rows for a target, and the bytes of their bodies.
SELECT kind, length(body) FROM outbox WHERE target = ?;

-- name: posted_total
-- How many rows for a target there are up to a number, and the bytes of their bodies.
SELECT count(*), coalesce(sum(length(body)), 0) FROM outbox
WHERE target = ? AND number <= ?;

-- name: forget_posted
-- Forget the rows for a target up to a number.
DELETE FROM outbox WHERE target = ? AND number <= ?;

-- name: mirrored
-- The entities that other stores hold, in order of store and key.
SELECT shard, id, kind, key, body, created_ms, updated_ms FROM mirror
ORDER BY shard, key;

-- name: mirror
-- Keep an entity that another store holds.
INSERT OR REPLACE INTO mirror (
    shard, id, kind, key, body, created_ms, updated_ms
) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: unmirror
-- Forget an entity that another store held.
DELETE FROM mirror WHERE shard = ? AND key = ?;
