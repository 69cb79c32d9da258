-- name: oldest
-- When the first message of a range of ids was enqueued.
SELECT enqueued_ms, id FROM message WHERE id >= ?1 AND id < ?2
UNION ALL
SELECT enqueued_ms, last FROM pack WHERE last >= ?1 AND last < ?2
ORDER BY 2 LIMIT 1;

-- name: locked_ids
-- Which of these messages have a lock (a JSON array of ids).
SELECT id FROM lock WHERE id IN (SELECT value FROM json_each(?1))
UNION ALL
SELECT wanted.value FROM json_each(?1) AS wanted
CROSS JOIN pack_lock
    ON last = (SELECT min(last) FROM pack_lock WHERE last >= wanted.value)
WHERE first <= wanted.value;

-- name: sessions_after
-- Sessions of a container with messages, a lock or a state, in order of name.
SELECT
    wanted.name, coalesce(active, 0), coalesce(messages, 0), until_ms, nonce,
    length(state)
FROM (
    SELECT name FROM session WHERE container = :container AND name > :after
    UNION
    SELECT name FROM session_state WHERE container = :container AND name > :after
    ORDER BY name LIMIT :limit
) AS wanted
LEFT JOIN session ON session.container = :container AND session.name = wanted.name
LEFT JOIN session_state
    ON session_state.container = :container AND session_state.name = wanted.name;
