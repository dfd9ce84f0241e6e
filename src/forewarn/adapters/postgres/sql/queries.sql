-- Named queries that PostgreSQL says in its own words; the others are those of tables/sql/queries.sql.

-- name: lineage
-- Which database this is, and how many commits it has.
SELECT installation_id AS database_id, batch AS commits FROM leadership CROSS JOIN journal_extent;

-- name: prune_through
-- Lines up to this number may be gone.
UPDATE journal_extent SET pruned_through = GREATEST(pruned_through, :number);

-- name: events
-- Events, open or ended.
SELECT * FROM scheduled_event WHERE event_id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST(:ids AS jsonb))));

-- name: actions_of_events
-- The actions of some events, in their order.
SELECT * FROM action WHERE event_id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST(:ids AS jsonb))))
 ORDER BY position;

-- name: operations
-- Operations, open or ended.
SELECT * FROM operation WHERE operation_id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST(:ids AS jsonb))));

-- name: members_of_operations
-- The members of some operations, in their order.
SELECT * FROM operation_member
 WHERE operation_id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST(:ids AS jsonb)))) ORDER BY position;

-- name: actions_of_operations
-- The actions of some operations; each has one at most.
SELECT * FROM action WHERE operation_id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST(:ids AS jsonb))));

-- name: remembered
-- The answers kept under some keys.
SELECT * FROM remembered WHERE idempotency_key = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST(:ids AS jsonb))));

-- name: count_first_reads
-- How many VMs have read some events.
SELECT COUNT(*) AS count FROM receipt
 WHERE event_id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST(:ids AS jsonb))));

-- name: delete_lines
-- Lines go; their numbers never come again.
DELETE FROM journal WHERE number = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST(:numbers AS jsonb))::bigint));

-- name: delete_first_reads
-- What goes with events that go.
DELETE FROM receipt WHERE event_id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST(:ids AS jsonb))));

-- name: delete_actions_of_events
-- The same: what was done for them.
DELETE FROM action WHERE event_id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST(:ids AS jsonb))));

-- name: delete_ended_events
-- Only an event that has ended goes.
DELETE FROM scheduled_event
 WHERE event_id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST(:ids AS jsonb))))
   AND phase NOT IN ('scheduled', 'started');

-- name: delete_members_of_operations
-- What goes with operations that go.
DELETE FROM operation_member
 WHERE operation_id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST(:ids AS jsonb))));

-- name: delete_actions_of_operations
-- The same: what was done of them.
DELETE FROM action WHERE operation_id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST(:ids AS jsonb))));

-- name: delete_ended_operations
-- Only an operation that has ended goes.
DELETE FROM operation
 WHERE operation_id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST(:ids AS jsonb)))) AND phase = 'ended';
