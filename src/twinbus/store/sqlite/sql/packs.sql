-- name: has_packs
-- Whether there is any pack.
SELECT EXISTS (SELECT 1 FROM pack WHERE last > 0);

-- name: insert_pack
-- Keep messages as a pack.
INSERT INTO pack (last, first, enqueued_ms, origin, head, sizes, bares)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: next_pack
-- The first pack that ends in a range of ids.
SELECT last, first, enqueued_ms, origin, head, sizes, bares, NULL, NULL
FROM pack WHERE last > ? AND last <= ? ORDER BY last LIMIT 1;

-- name: packs_after
-- Packs that end in a range of ids, in order, with what is left of them.
SELECT
    last, coalesce(pack_lock.first, pack.first), enqueued_ms,
    origin + coalesce(pack_lock.first - pack.first, 0), head,
    substr(sizes, 1 + 4 * coalesce(pack_lock.first - pack.first, 0)),
    bares, nonce, until_ms
FROM pack LEFT JOIN pack_lock USING (last)
WHERE last >= ? AND last < ? ORDER BY last;

-- name: packs_of
-- The packs that have these messages (a JSON array of ids), with what is left of them.
SELECT
    last, coalesce(pack_lock.first, pack.first), enqueued_ms,
    origin + coalesce(pack_lock.first - pack.first, 0), head,
    substr(sizes, 1 + 4 * coalesce(pack_lock.first - pack.first, 0)),
    bares, nonce, until_ms
FROM pack LEFT JOIN pack_lock USING (last)
WHERE last IN (
    SELECT found.last FROM json_each(?) AS wanted
    CROSS JOIN pack AS found
        ON found.last = (SELECT min(last) FROM pack WHERE last >= wanted.value)
    LEFT JOIN pack_lock AS held ON held.last = found.last
    WHERE coalesce(held.first, found.first) <= wanted.value
);

-- name: ended_packs
-- Locked packs whose locks have ended, earliest first, with what is left of them.
SELECT
    last, pack_lock.first, enqueued_ms, origin + (pack_lock.first - pack.first), head,
    substr(sizes, 1 + 4 * (pack_lock.first - pack.first)), bares, nonce, until_ms
FROM pack_lock INDEXED BY pack_lock_until
CROSS JOIN pack USING (last)
WHERE until_ms <= ?
ORDER BY until_ms, last LIMIT ?;

-- name: held_packs
-- Locked packs with messages in a range of ids, in order, without the messages.
SELECT
    last, pack_lock.first, nonce, until_ms, length(head),
    substr(sizes, 1 + 4 * (pack_lock.first - pack.first))
FROM pack_lock CROSS JOIN pack USING (last)
WHERE last >= :first AND last < :last + :most AND pack_lock.first <= :last
ORDER BY last;

-- name: pack_sizes
-- Packs that end in a range of ids, in order: what is left of each, and its bytes.
SELECT
    last, coalesce(pack_lock.first, pack.first), length(head),
    substr(sizes, 1 + 4 * coalesce(pack_lock.first - pack.first, 0))
FROM pack LEFT JOIN pack_lock USING (last)
WHERE last >= ? AND last <= ? ORDER BY last;

-- name: lock_pack
-- Lock a pack.
INSERT INTO pack_lock (last, first, nonce, until_ms) VALUES (?, ?, ?, ?);

-- name: complete_in_pack
-- Note that the messages of a locked pack before an id are completed.
UPDATE pack_lock SET first = ? WHERE last = ?;

-- name: delete_pack
-- Forget a pack.
DELETE FROM pack WHERE last = ?;

-- name: delete_pack_lock
-- Forget the lock of a pack.
DELETE FROM pack_lock WHERE last = ?;

-- name: empty_packs
-- Forget the packs of a range of ids.
DELETE FROM pack WHERE last >= ? AND last < ?;

-- name: empty_pack_locks
-- Forget the locks of the packs of a range of ids.
DELETE FROM pack_lock WHERE last >= ? AND last < ?;

-- name: cut_pack_locks
-- Let no lock of a pack end after a time.
UPDATE pack_lock SET until_ms = :until_ms WHERE until_ms > :until_ms;
