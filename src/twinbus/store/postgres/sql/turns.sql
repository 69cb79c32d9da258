-- name: lock_shard
-- Wait for the turn in hand, of whichever node, and begin one.
SELECT folded FROM shard WHERE id = %s FOR UPDATE;

-- name: turns_after
-- The time, and the turns after a number, in order.
SELECT now_ms, number, steady_ms, wall_ms, body
FROM (
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms
) AS clock LEFT JOIN turn ON number > %s
ORDER BY number;

-- name: insert_turn
-- Write a turn into the log.
INSERT INTO turn (number, token, steady_ms, wall_ms, body)
VALUES (%s, %s, %s, %s, %s);

-- name: find_turn
-- Whether the log has a turn.
SELECT 1 FROM turn WHERE number = %s AND token = %s;

-- name: fold
-- Note that the counters in the tables are those after a turn.
UPDATE shard SET folded = %s;

-- name: forget_turns
-- Forget the turns after a number and up to another.
DELETE FROM turn WHERE number > %s AND number <= %s;

-- name: sync
-- Write an empty record into PostgreSQL's log: its commit waits for all before it.
SELECT pg_logical_emit_message(true, 'twinbus', '');

-- name: end_stuck_turns
-- End sessions that hold a shard's row and have waited so long for their node.
WITH stuck AS MATERIALIZED (
    SELECT pid FROM pg_stat_activity
    WHERE wait_event_type = 'Client' AND usename = current_user
        AND xact_start IS NOT NULL AND state_change < clock_timestamp() - %s::interval
        AND pid IN (
            SELECT pid FROM pg_locks
            WHERE relation = 'shard'::regclass AND mode = 'RowShareLock' AND granted
        )
)
SELECT pid, pg_terminate_backend(pid) FROM stuck;
