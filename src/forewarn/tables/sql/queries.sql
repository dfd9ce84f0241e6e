-- The queries of the store: a name, a sentence that says what it is for, one statement. What writes
-- the rows of a value is made from its columns. Ids and numbers that are meant together are JSON text.

-- name: hosts
-- All hosts, by name.
SELECT * FROM host ORDER BY name;

-- name: scopes
-- All scopes, by name.
SELECT * FROM scope ORDER BY name;

-- name: lift_incarnation
-- An incarnation is at least the one that guests read from the database a restore replaces.
UPDATE scope SET incarnation = :incarnation
 WHERE name = :name AND incarnation < :incarnation;

-- name: raise_incarnations
-- After a restore guests may have seen documents that the backup does not know.
UPDATE scope SET incarnation = incarnation + :added, revision = revision + 1;

-- name: vms
-- All VMs, by scope and in their order.
SELECT * FROM vm ORDER BY scope, position;

-- name: events_open
-- All open events, oldest first.
SELECT * FROM scheduled_event WHERE phase IN ('scheduled', 'started') ORDER BY sequence;

-- name: event_ids
-- Ids of events that begin alike.
SELECT event_id FROM scheduled_event WHERE event_id >= :beginning AND event_id < :end
 ORDER BY event_id LIMIT :limit;

-- name: operations_open
-- All open operations, oldest first.
SELECT * FROM operation WHERE phase IN ('waiting', 'started') ORDER BY sequence;

-- name: operation_members_open
-- The members of all open operations.
SELECT operation_member.* FROM operation_member
  JOIN operation ON operation.operation_id = operation_member.operation_id
 WHERE operation.phase IN ('waiting', 'started')
 ORDER BY operation_member.operation_id, operation_member.position;

-- name: operation_ids
-- Ids of operations that begin alike.
SELECT operation_id FROM operation WHERE operation_id >= :beginning AND operation_id < :end
 ORDER BY operation_id LIMIT :limit;

-- name: actions_of_open_events
-- The actions of all open events, in their order.
SELECT action.* FROM action
  JOIN scheduled_event ON scheduled_event.event_id = action.event_id
 WHERE scheduled_event.phase IN ('scheduled', 'started')
 ORDER BY action.position;

-- name: actions_of_open_operations
-- The actions of all open operations.
SELECT action.* FROM action
  JOIN operation ON operation.operation_id = action.operation_id
 WHERE operation.phase IN ('waiting', 'started')
 ORDER BY action.position;

-- name: journal_end
-- The number of the newest line.
SELECT COALESCE(MAX(number), 0) AS number FROM journal;

-- name: journal_extent
-- Whose journal it is, and up to where lines were pruned.
SELECT installation_id, pruned_through FROM journal_extent;

-- name: generations
-- In the order in which restores have begun them.
SELECT generation, first_number FROM journal_generation ORDER BY generation;

-- name: insert_generation
-- A restore begins one.
INSERT INTO journal_generation (generation, first_number) VALUES (:generation, :first_number);

-- name: name_installation
-- Whose journal it is from now on.
UPDATE journal_extent SET installation_id = :installation_id;

-- name: prune_through
-- Lines up to this number may be gone.
UPDATE journal_extent SET pruned_through = MAX(pruned_through, :number);

-- name: definition
-- What a VM was when a host last showed it otherwise.
SELECT * FROM definition WHERE vm = :vm;

-- name: definition_digests
-- Which definitions there are, without their texts.
SELECT vm, digest FROM definition;

-- name: departed_vms
-- VMs that have left the fleet, those that left longest ago first.
SELECT name, vm_id, incarnation, left_ms FROM departed_vm ORDER BY left_ms, name, vm_id;

-- name: tokens
-- Every token, also those that have ended.
SELECT * FROM token ORDER BY token_id;

-- name: webhooks
-- Every webhook, also those that are disabled.
SELECT * FROM webhook ORDER BY webhook_id;

-- name: first_reads
-- The receipts of an event, oldest first.
SELECT * FROM receipt WHERE event_id = :event_id ORDER BY read_ms, vm;

-- name: delete_remembered
-- Deletes the oldest answers, some at a time, once no caller sends their orders again.
DELETE FROM remembered WHERE idempotency_key IN
    (SELECT idempotency_key FROM remembered WHERE at_ms < :before_ms ORDER BY at_ms LIMIT :limit);

-- name: meta
-- The heartbeat and the inventory.
SELECT name, value FROM meta;

-- name: unfinished_inventory
-- What was noted of an inventory that is not applied whole yet.
SELECT about FROM unfinished_inventory;

-- name: lineage
-- Which database this is, and how many commits it has.
SELECT database_id, commits FROM lineage;

-- name: insert_lineage
-- What a database is known by from now on.
INSERT INTO lineage (database_id, commits) VALUES (:database_id, :commits);

-- name: delete_lineage
-- A restored database is another one than its backup was made of.
DELETE FROM lineage;

-- name: count_commit
-- The last statement of every transaction.
UPDATE lineage SET commits = :commits WHERE commits = :commits_before;

-- name: insert_epoch
-- The first commit of a life of control.
INSERT INTO epoch (epoch_id, first_commit) VALUES (:epoch_id, :first_commit);

-- name: delete_old_epochs
-- The oldest lives of control, but for so many: a host of one of those is told everything.
DELETE FROM epoch WHERE first_commit <=
    (SELECT first_commit FROM epoch ORDER BY first_commit DESC LIMIT 1 OFFSET :kept);

-- name: epochs
-- The lives of controls on this database, oldest first.
SELECT epoch_id, first_commit FROM epoch ORDER BY first_commit;

-- name: delete_epochs
-- A restored database counts its commits anew: no position of before means anything in it.
DELETE FROM epoch;

-- name: shown_commits
-- When what hosts are shown of a scope last changed.
SELECT name, shown_commit FROM scope;

-- name: reset_shown_commits
-- As above.
UPDATE scope SET shown_commit = 0;

-- name: prunable_lines
-- Of the oldest lines that belong to nothing open, those that are old enough.
SELECT number
  FROM (SELECT number, at_ms FROM journal
         WHERE NOT EXISTS (SELECT 1 FROM scheduled_event
                            WHERE scheduled_event.event_id = journal.event_id
                              AND scheduled_event.phase IN ('scheduled', 'started'))
           AND NOT EXISTS (SELECT 1 FROM operation
                            WHERE operation.operation_id = journal.operation_id
                              AND operation.phase IN ('waiting', 'started'))
         ORDER BY number LIMIT :limit) AS oldest
 WHERE at_ms < :before_ms
 ORDER BY number;

-- name: prunable_events
-- The same of ended events, but for one that holds its scope, one of a later operation, the newest.
SELECT event_id
  FROM (SELECT event_id, sequence, ended_ms, operation_id FROM scheduled_event
         WHERE phase NOT IN ('scheduled', 'started')
           AND NOT EXISTS (SELECT 1 FROM scope
                            WHERE scope.hold_event_id = scheduled_event.event_id)
           AND NOT EXISTS (SELECT 1 FROM operation
                            WHERE operation.operation_id = scheduled_event.operation_id
                              AND COALESCE(operation.ended_ms, :before_ms) >= :before_ms)
         ORDER BY sequence LIMIT :limit) AS oldest
 WHERE ended_ms < :before_ms
   AND sequence < (SELECT MAX(sequence) FROM scheduled_event)
 ORDER BY sequence;

-- name: prunable_operations
-- The same of operations, once no event of theirs is left.
SELECT operation_id
  FROM (SELECT operation_id, sequence, ended_ms FROM operation
         WHERE phase = 'ended'
           AND NOT EXISTS (SELECT 1 FROM operation_member
                             JOIN scheduled_event
                               ON scheduled_event.event_id = operation_member.event_id
                            WHERE operation_member.operation_id = operation.operation_id)
         ORDER BY sequence LIMIT :limit) AS oldest
 WHERE ended_ms < :before_ms
   AND sequence < (SELECT MAX(sequence) FROM operation)
 ORDER BY sequence;

-- name: first_reads_of_scheduled
-- Who has read what has not started yet.
SELECT receipt.* FROM receipt
  JOIN scheduled_event ON scheduled_event.event_id = receipt.event_id
 WHERE scheduled_event.phase = 'scheduled';

-- name: last_backup
-- When a backup was last given, among the newest lines.
SELECT at_ms FROM journal WHERE number > :after AND kind = 'backed-up'
 ORDER BY number DESC LIMIT 1;

-- name: last_numbers
-- The highest numbers of events and operations. They stay when older ones are pruned.
SELECT (SELECT COALESCE(MAX(sequence), 0) FROM scheduled_event) AS events,
       (SELECT COALESCE(MAX(sequence), 0) FROM operation) AS operations;

-- name: events
-- Events, open or ended.
SELECT * FROM scheduled_event WHERE event_id IN (SELECT value FROM json_each(:ids));

-- name: actions_of_events
-- The actions of some events, in their order.
SELECT * FROM action WHERE event_id IN (SELECT value FROM json_each(:ids)) ORDER BY position;

-- name: operations
-- Operations, open or ended.
SELECT * FROM operation WHERE operation_id IN (SELECT value FROM json_each(:ids));

-- name: members_of_operations
-- The members of some operations, in their order.
SELECT * FROM operation_member WHERE operation_id IN (SELECT value FROM json_each(:ids))
 ORDER BY position;

-- name: actions_of_operations
-- The actions of some operations; each has one at most.
SELECT * FROM action WHERE operation_id IN (SELECT value FROM json_each(:ids));

-- name: remembered
-- The answers kept under some keys.
SELECT * FROM remembered WHERE idempotency_key IN (SELECT value FROM json_each(:ids));

-- name: count_first_reads
-- How many VMs have read some events.
SELECT COUNT(*) AS count FROM receipt WHERE event_id IN (SELECT value FROM json_each(:ids));

-- name: delete_lines
-- Lines go; their numbers never come again.
DELETE FROM journal WHERE number IN (SELECT value FROM json_each(:numbers));

-- name: delete_first_reads
-- What goes with events that go.
DELETE FROM receipt WHERE event_id IN (SELECT value FROM json_each(:ids));

-- name: delete_actions_of_events
-- The same: what was done for them.
DELETE FROM action WHERE event_id IN (SELECT value FROM json_each(:ids));

-- name: delete_ended_events
-- Only an event that has ended goes.
DELETE FROM scheduled_event
 WHERE event_id IN (SELECT value FROM json_each(:ids)) AND phase NOT IN ('scheduled', 'started');

-- name: delete_members_of_operations
-- What goes with operations that go.
DELETE FROM operation_member WHERE operation_id IN (SELECT value FROM json_each(:ids));

-- name: delete_actions_of_operations
-- The same: what was done of them.
DELETE FROM action WHERE operation_id IN (SELECT value FROM json_each(:ids));

-- name: delete_ended_operations
-- Only an operation that has ended goes.
DELETE FROM operation
 WHERE operation_id IN (SELECT value FROM json_each(:ids)) AND phase = 'ended';
