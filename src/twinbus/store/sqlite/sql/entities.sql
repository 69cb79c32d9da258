-- name: entities
-- All entities, oldest first.
SELECT id, kind, key, body, created_ms, updated_ms FROM entity
WHERE kind <> 'retired' ORDER BY id;

-- name: retired
-- Entities that are forgotten but for their containers.
SELECT id FROM entity WHERE kind = 'retired' ORDER BY id;

-- name: retire_entity
-- Forget an entity but for its containers; no entity has such a key.
UPDATE entity SET kind = 'retired', key = ' ' || id, body = '' WHERE id = ?;

-- name: entity_key_taken
-- Whether an entity has this key.
SELECT 1 FROM entity WHERE key = ?;

-- name: last_entity
-- The highest id that an entity ever had; no row before the first.
SELECT seq FROM sqlite_sequence WHERE name = 'entity';

-- name: free_entity
-- The lowest id that no entity has, for when the ids have been used up once.
SELECT min(candidate) FROM (
    SELECT 4 AS candidate WHERE NOT EXISTS (SELECT 1 FROM entity WHERE id = 4)
    UNION ALL
    SELECT min(before.id) + 4 FROM entity AS before
    WHERE NOT EXISTS (SELECT 1 FROM entity WHERE id = before.id + 4)
);

-- name: insert_entity
-- Keep an entity.
INSERT INTO entity (id, kind, key, body, created_ms, updated_ms)
VALUES (?, ?, ?, ?, ?, ?);

-- name: update_entity
-- Give an entity a new body.
UPDATE entity SET body = ?, updated_ms = ? WHERE id = ?;

-- name: delete_entity
-- Forget an entity; its containers are emptied apart.
DELETE FROM entity WHERE id = ?;

-- name: setting
-- The value of a setting.
SELECT value FROM setting WHERE name = ?;

-- name: put_setting
-- Keep a setting.
INSERT INTO setting (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: is_blank
-- Whether there never was an entity or a setting.
SELECT NOT EXISTS (SELECT 1 FROM entity WHERE id > 0)
    AND NOT EXISTS (SELECT 1 FROM setting WHERE name > '');

-- name: remember
-- Note a message id; changes no row if it is known and its window is open.
INSERT INTO duplicate (container, key, until_ms) VALUES (?, ?, ?)
ON CONFLICT (container, key) DO UPDATE SET until_ms = excluded.until_ms
WHERE duplicate.until_ms <= ?;

-- name: forget_duplicates
-- Drop message ids whose window has closed.
DELETE FROM duplicate WHERE (container, key) IN (
    SELECT container, key FROM duplicate WHERE until_ms <= ? LIMIT ?
);
