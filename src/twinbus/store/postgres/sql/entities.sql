-- name: entities
-- All entities, oldest first.
SELECT id, kind, key, body, created_ms, updated_ms FROM entity
WHERE kind <> 'retired' ORDER BY id;

-- name: retired
-- Entities that are forgotten but for their containers.
SELECT id FROM entity WHERE kind = 'retired' ORDER BY id;

-- name: retire_entity
-- Forget an entity but for its containers; no entity has such a key.
UPDATE entity SET kind = 'retired', key = ' ' || id, body = '' WHERE id = %s;

-- name: entity_key_taken
-- Whether an entity has this key.
SELECT 1 FROM entity WHERE key = %s;

-- name: last_entity
-- The highest id that an entity ever had; 0 before the first.
SELECT id FROM last_entity;

-- name: free_entity
-- The lowest id that no entity has, for when the ids have been used up once.
SELECT min(candidate) FROM (
    SELECT 4 AS candidate WHERE NOT EXISTS (SELECT 1 FROM entity WHERE id = 4)
    UNION ALL
    SELECT min(before.id) + 4 FROM entity AS before
    WHERE NOT EXISTS (SELECT 1 FROM entity WHERE id = before.id + 4)
) AS candidates;

-- name: insert_entity
-- Keep an entity.
WITH made AS (
    INSERT INTO entity (id, kind, key, body, created_ms, updated_ms)
    VALUES (%s, %s, %s, %s, %s, %s) RETURNING id
)
UPDATE last_entity SET id = greatest(last_entity.id, made.id) FROM made;

-- name: update_entity
-- Give an entity a new body.
UPDATE entity SET body = %s, updated_ms = %s WHERE id = %s;

-- name: delete_entity
-- Forget an entity; its containers are emptied apart.
DELETE FROM entity WHERE id = %s;

-- name: setting
-- The value of a setting.
SELECT value FROM setting WHERE name = %s;

-- name: put_setting
-- Keep a setting.
INSERT INTO setting (name, value) VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: remember
-- Note message ids; returns those that are new, or whose window has closed.
INSERT INTO duplicate (container, key, until_ms)
SELECT %s::bigint, key, %s::bigint FROM unnest(%s::text[]) AS wanted (key)
ON CONFLICT (container, key) DO UPDATE SET until_ms = excluded.until_ms
WHERE duplicate.until_ms <= %s
RETURNING key;

-- name: forget_duplicates
-- Drop message ids whose window has closed.
DELETE FROM duplicate WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM duplicate WHERE until_ms <= %s LIMIT %s
)) RETURNING 1;
