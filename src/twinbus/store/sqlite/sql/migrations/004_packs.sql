-- Messages that arrived together, several in a row.

-- Active messages with consecutive ids that are alike but for their `bare`: no session,
-- expiry or source, never delivered. `sizes` has the length of each `bare`, as unsigned
-- 32-bit integers, the lowest byte first; `bares` has them back to back. `origin` is
-- that of the first, those of the others count on from it. A pack is above the head of
-- its container, or it has a lock. A pack is only received, completed and deleted as it
-- is: for all else its messages become rows of `message` and `lock`.
CREATE TABLE pack (
    last INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,
    enqueued_ms INTEGER NOT NULL,
    origin INTEGER,
    head BLOB NOT NULL,
    sizes BLOB NOT NULL,
    bares BLOB NOT NULL
) STRICT;

-- The lock of a pack, for its messages from `first` on: those before are completed.
CREATE TABLE pack_lock (
    last INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,
    nonce INTEGER NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX pack_lock_until ON pack_lock (until_ms);
