-- name: oldest
-- When the first message of a range of ids was enqueued.
SELECT enqueued_ms FROM message WHERE id >= %s AND id < %s ORDER BY id LIMIT 1;

-- name: locked_ids
-- Which of these messages have a lock (an array of ids).
SELECT id FROM lock WHERE id = ANY(%s::bigint[]);

-- name: sessions_after
-- Sessions of a container with messages, a lock or a state, in order of name.
SELECT
    wanted.name, coalesce(active, 0), coalesce(messages, 0), until_ms, nonce,
    octet_length(state)
FROM (
    SELECT name FROM session WHERE container = %(container)s AND name > %(after)s
    UNION
    SELECT name FROM session_state
    WHERE container = %(container)s AND name > %(after)s
    ORDER BY name LIMIT %(limit)s
) AS wanted
LEFT JOIN session
    ON session.container = %(container)s AND session.name = wanted.name
LEFT JOIN session_state
    ON session_state.container = %(container)s AND session_state.name = wanted.name
ORDER BY wanted.name;
