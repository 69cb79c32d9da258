-- Messages that cannot be read, as they were found: whatever a damaged row holds is kept
-- for a person to look at. So the columns have no types.
CREATE TABLE quarantine (
    id INTEGER PRIMARY KEY,
    reason,
    enqueued_ms,
    state,
    deliveries,
    expires_ms,
    due_ms,
    session,
    origin,
    source,
    head,
    bare
);
