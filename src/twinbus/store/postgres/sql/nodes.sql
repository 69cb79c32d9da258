-- name: last_turn
-- The number of the newest turn.
SELECT max(number) FROM turn;

-- name: news
-- The turns after a number and up to another, with the node of each.
SELECT number, token >> 32, body FROM turn
WHERE number > %s AND number <= %s ORDER BY number;

-- name: beat
-- Note that a node is there.
INSERT INTO node (id, name, seen_at) VALUES (%s, %s, clock_timestamp())
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at;

-- name: other_nodes
-- Other nodes that were there within so many seconds, and forget those of last week.
WITH gone AS (DELETE FROM node WHERE seen_at < clock_timestamp() - interval '7 days')
SELECT name, extract(epoch FROM clock_timestamp() - seen_at) FROM node
WHERE id <> %s AND seen_at > clock_timestamp() - %s * interval '1 second'
ORDER BY name;

-- name: leave
-- Forget a node.
DELETE FROM node WHERE id = %s;
