-- The first schema, of one shard of a namespace.
--
-- A message's id is `container << 40 | sequence`, so one range of ids is one container
-- and the order of ids is the order of messages. Messages are inserted and deleted and
-- never updated, but for a client that changes its properties.

-- Its row is locked by the turn in hand, of whichever node. `folded` is the turn up to
-- which `container`, `outbox_target` and `applied` have what the log of turns says.
CREATE TABLE shard (
    id bigint PRIMARY KEY,
    folded bigint NOT NULL
);

-- The log of turns: one row for each turn that changed something, in order without
-- gaps. `token` has the number of the node in its upper bits; `body` (JSON) has the
-- counters after the turn, and news for other nodes.
CREATE TABLE turn (
    number bigint PRIMARY KEY,
    token bigint NOT NULL,
    steady_ms bigint NOT NULL,
    wall_ms bigint NOT NULL,
    body text NOT NULL
);

-- The nodes that serve the shard, and when each was last there.
CREATE TABLE node (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    seen_at timestamptz NOT NULL
);

CREATE TABLE setting (
    name text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);

-- Ids are multiples of 4.
CREATE TABLE entity (
    id bigint PRIMARY KEY,
    kind text NOT NULL,
    key text COLLATE "C" NOT NULL UNIQUE,
    body text NOT NULL,
    created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL
);

-- The highest id that an entity ever had, so that the id of a deleted one does not come
-- back while there are fresh ones.
CREATE TABLE last_entity (
    id bigint NOT NULL
);
INSERT INTO last_entity VALUES (0);

-- Counters as of the turn `shard.folded`. `head` is a sequence number: no message at or
-- below it is ready, unless `returned` lists it.
CREATE TABLE container (
    id bigint PRIMARY KEY,
    last_sequence bigint NOT NULL,
    head bigint NOT NULL,
    active bigint NOT NULL,
    deferred bigint NOT NULL,
    scheduled bigint NOT NULL,
    size_bytes bigint NOT NULL,
    accessed_ms bigint NOT NULL,
    held_sessions bigint NOT NULL
);

-- Active and deferred messages, as they came.
CREATE TABLE message (
    id bigint PRIMARY KEY,
    enqueued_ms bigint NOT NULL,
    deliveries bigint NOT NULL,
    expires_ms bigint,
    session text COLLATE "C",
    origin bigint,
    source text,
    head bytea NOT NULL,
    bare bytea NOT NULL
);
-- Bodies are not compressed: it costs more than it saves.
ALTER TABLE message ALTER COLUMN bare SET STORAGE EXTERNAL;

CREATE INDEX message_expires ON message (expires_ms, id) WHERE expires_ms IS NOT NULL;
CREATE INDEX message_session ON message (session, id) WHERE session IS NOT NULL;

-- What happened to a message since it came: deliveries that were counted, and whether
-- it was deferred (state 1).
CREATE TABLE mark (
    id bigint PRIMARY KEY,
    deliveries bigint NOT NULL,
    state bigint NOT NULL
);

-- Messages as they are now.
CREATE VIEW kept AS
SELECT
    message.id, enqueued_ms, coalesce(mark.state, 0) AS state,
    message.deliveries + coalesce(mark.deliveries, 0) AS deliveries, expires_ms,
    NULL::bigint AS due_ms, session, origin, source, head, bare
FROM message LEFT JOIN mark ON mark.id = message.id;

-- Scheduled messages have a table of their own: a receive walks over the ids of
-- `message`, and must not walk over a million that are due next week.
CREATE TABLE scheduled (
    id bigint PRIMARY KEY,
    enqueued_ms bigint NOT NULL,
    deliveries bigint NOT NULL,
    expires_ms bigint,
    due_ms bigint NOT NULL,
    session text COLLATE "C",
    origin bigint,
    source text,
    head bytea NOT NULL,
    bare bytea NOT NULL
);
ALTER TABLE scheduled ALTER COLUMN bare SET STORAGE EXTERNAL;

CREATE INDEX scheduled_due ON scheduled (due_ms, id);
CREATE INDEX scheduled_expires ON scheduled (expires_ms, id)
    WHERE expires_ms IS NOT NULL;
CREATE INDEX scheduled_session ON scheduled (session, id) WHERE session IS NOT NULL;

CREATE VIEW planned AS
SELECT
    id, enqueued_ms, 2::bigint AS state, deliveries, expires_ms, due_ms, session, origin,
    source, head, bare
FROM scheduled;

-- A lock. One that belongs to a session lock has no end of its own: its `until_ms` is
-- 1 << 62 and its nonce is the session's.
CREATE TABLE lock (
    id bigint PRIMARY KEY,
    nonce bigint NOT NULL,
    until_ms bigint NOT NULL
);

CREATE INDEX lock_until ON lock (until_ms, id) WHERE until_ms < 4611686018427387904;
CREATE INDEX lock_nonce ON lock (nonce, id) WHERE until_ms = 4611686018427387904;

-- Ready messages at or below the head of their container.
CREATE TABLE returned (
    id bigint PRIMARY KEY
);

-- A session that has messages or is locked. Both `nonce` and `until_ms` are set while
-- it is; `head` is a sequence number at or below which none of its messages is ready.
-- A session waits since `served_ms`.
CREATE TABLE session (
    container bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    active bigint NOT NULL,
    messages bigint NOT NULL,
    served_ms bigint NOT NULL,
    head bigint NOT NULL DEFAULT 0,
    nonce bigint,
    until_ms bigint,
    PRIMARY KEY (container, name)
);

CREATE INDEX session_waiting ON session (container, served_ms, name)
    WHERE active > 0 AND nonce IS NULL;
CREATE INDEX session_until ON session (until_ms) WHERE until_ms IS NOT NULL;

-- Apart from `session`, because a state may be large and the counters change often.
CREATE TABLE session_state (
    container bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    updated_ms bigint NOT NULL,
    state bytea NOT NULL,
    PRIMARY KEY (container, name)
);

-- Message ids that were seen; one whose time has passed counts as never seen.
CREATE TABLE duplicate (
    container bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    until_ms bigint NOT NULL,
    PRIMARY KEY (container, key)
);

CREATE INDEX duplicate_until ON duplicate (until_ms);

-- Messages that cannot be worked off, for a person to look at.
CREATE TABLE quarantine (
    id bigint PRIMARY KEY,
    reason text,
    enqueued_ms bigint,
    state bigint,
    deliveries bigint,
    expires_ms bigint,
    due_ms bigint,
    session text COLLATE "C",
    origin bigint,
    source text,
    head bytea,
    bare bytea
);

-- What this shard has for others, and what it has applied of theirs.
CREATE TABLE outbox (
    target bigint NOT NULL,
    number bigint NOT NULL,
    kind text NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (target, number)
);
ALTER TABLE outbox ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE outbox_target (
    target bigint PRIMARY KEY,
    rows bigint NOT NULL,
    size_bytes bigint NOT NULL,
    last_number bigint NOT NULL
);

CREATE TABLE applied (
    source bigint PRIMARY KEY,
    number bigint NOT NULL
);

-- Entities that other shards hold, as they have them.
CREATE TABLE mirror (
    shard bigint NOT NULL,
    id bigint NOT NULL,
    kind text NOT NULL,
    key text COLLATE "C" NOT NULL,
    body text NOT NULL,
    created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL,
    PRIMARY KEY (shard, key)
);
