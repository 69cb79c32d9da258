-- The first schema.
--
-- A message's id is `container << 40 | sequence`, so one range of ids is one container
-- and the order of ids is the order of messages. The hot path (append, lock, complete)
-- inserts and deletes rows and never updates a message.

CREATE TABLE setting (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Ids are multiples of 4. AUTOINCREMENT keeps the highest one ever given, so that the
-- id of a deleted entity does not come back while there are fresh ones.
CREATE TABLE entity (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    key TEXT NOT NULL UNIQUE,
    body TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL
) STRICT;

-- What a container holds, so that nothing has to be counted. `head` is a sequence
-- number: no message at or below it is ready, unless `returned` lists it.
CREATE TABLE container (
    id INTEGER PRIMARY KEY,
    last_sequence INTEGER NOT NULL,
    head INTEGER NOT NULL,
    active INTEGER NOT NULL,
    deferred INTEGER NOT NULL,
    scheduled INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    accessed_ms INTEGER NOT NULL,
    held_sessions INTEGER NOT NULL
) STRICT;

-- Active (state 0) and deferred (state 1) messages.
CREATE TABLE message (
    id INTEGER PRIMARY KEY,
    enqueued_ms INTEGER NOT NULL,
    state INTEGER NOT NULL,
    deliveries INTEGER NOT NULL,
    expires_ms INTEGER,
    session TEXT,
    origin INTEGER,
    source TEXT,
    head BLOB NOT NULL,
    bare BLOB NOT NULL
) STRICT;

CREATE INDEX message_expires ON message (expires_ms) WHERE expires_ms IS NOT NULL;
-- Entries end with the id, so this gives the messages of a session in order.
CREATE INDEX message_session ON message (session, state) WHERE session IS NOT NULL;

-- Scheduled messages have a table of their own: a receive walks over the ids of
-- `message`, and must not walk over a million that are due next week.
CREATE TABLE scheduled (
    id INTEGER PRIMARY KEY,
    enqueued_ms INTEGER NOT NULL,
    deliveries INTEGER NOT NULL,
    expires_ms INTEGER,
    due_ms INTEGER NOT NULL,
    session TEXT,
    origin INTEGER,
    source TEXT,
    head BLOB NOT NULL,
    bare BLOB NOT NULL
) STRICT;

CREATE INDEX scheduled_due ON scheduled (due_ms);
CREATE INDEX scheduled_expires ON scheduled (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE INDEX scheduled_session ON scheduled (session) WHERE session IS NOT NULL;

-- A lock. One that belongs to a session lock has no end of its own: its `until_ms` is
-- 1 << 62 and its nonce is the session's.
CREATE TABLE lock (
    id INTEGER PRIMARY KEY,
    nonce INTEGER NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX lock_until ON lock (until_ms) WHERE until_ms < 4611686018427387904;
CREATE INDEX lock_nonce ON lock (nonce) WHERE until_ms = 4611686018427387904;

-- Ready messages at or below the head of their container.
CREATE TABLE returned (
    id INTEGER PRIMARY KEY
) STRICT;

-- A session that has messages or is locked. Both `nonce` and `until_ms` are set while
-- it is; `head` is a sequence number at or below which none of its messages is ready.
-- A session waits since `served_ms`.
CREATE TABLE session (
    container INTEGER NOT NULL,
    name TEXT NOT NULL,
    active INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    served_ms INTEGER NOT NULL,
    head INTEGER NOT NULL DEFAULT 0,
    nonce INTEGER,
    until_ms INTEGER,
    PRIMARY KEY (container, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX session_waiting ON session (container, served_ms)
    WHERE active > 0 AND nonce IS NULL;
CREATE INDEX session_until ON session (until_ms) WHERE until_ms IS NOT NULL;

-- Apart from `session`, because a state may be large and the counters change often.
CREATE TABLE session_state (
    container INTEGER NOT NULL,
    name TEXT NOT NULL,
    updated_ms INTEGER NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (container, name)
) STRICT;

-- Message ids that were seen; one whose time has passed counts as never seen.
CREATE TABLE duplicate (
    container INTEGER NOT NULL,
    key TEXT NOT NULL,
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (container, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX duplicate_until ON duplicate (until_ms);
