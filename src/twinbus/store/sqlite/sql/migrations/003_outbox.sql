-- What this store has for other stores, and what it has applied of theirs. Stores have
-- numbers.

-- Not WITHOUT ROWID: such a table keeps at most 2 KiB of a row in its tree. Bodies of
-- 3 KB would take three times the space and the time.
CREATE TABLE outbox (
    target INTEGER NOT NULL,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (target, number)
) STRICT;

-- Numbers count from 1 without gaps for each target, also when all rows are forgotten.
-- The other counters are here so that opening a store does not read its outbox.
CREATE TABLE outbox_target (
    target INTEGER PRIMARY KEY,
    rows INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    last_number INTEGER NOT NULL
) STRICT;

-- The last number of each other store's outbox that was applied here.
CREATE TABLE applied (
    source INTEGER PRIMARY KEY,
    number INTEGER NOT NULL
) STRICT;

-- Entities that other stores hold, as they have them.
CREATE TABLE mirror (
    shard INTEGER NOT NULL,
    id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    body TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    PRIMARY KEY (shard, key)
) STRICT;
