-- The queries of the store: a name, a sentence that says what it is for, one statement. What adds
-- or changes the rows of a value is made from its columns, in rows.py.

-- name: delete_host
-- Forget a host.
DELETE FROM host WHERE name = :name;

-- name: hosts
-- All hosts, by name.
SELECT * FROM host ORDER BY name;

-- name: scope_revision
-- Why update_scope wrote nothing: what is there instead.
SELECT revision, incarnation FROM scope WHERE name = :name;

-- name: delete_scope
-- Forget a scope; its VMs go first, its events must have ended.
DELETE FROM scope WHERE name = :name;

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

-- name: delete_vm
-- A VM leaves its scope.
DELETE FROM vm WHERE name = :name AND scope = :scope;

-- name: delete_vms_of_scope
-- All VMs leave a scope that is being removed.
DELETE FROM vm WHERE scope = :scope;

-- name: vm_positions
-- The places of a scope's VMs.
SELECT name, position FROM vm WHERE scope = :scope ORDER BY position;

-- name: vms
-- All VMs, by scope and in their order.
SELECT * FROM vm ORDER BY scope, position;

-- name: events_open
-- All open events, oldest first.
SELECT * FROM scheduled_event WHERE phase IN ('scheduled', 'started') ORDER BY sequence;

-- name: event
-- One event, open or ended.
SELECT * FROM scheduled_event WHERE event_id = :event_id;

-- name: event_ids_from
-- Ids of events from one on, open or ended: those with a common beginning are next to each other.
SELECT event_id FROM scheduled_event WHERE event_id >= :first ORDER BY event_id LIMIT :limit;

-- name: operation_ids_from
-- Ids of operations from one on, open or ended.
SELECT operation_id FROM operation WHERE operation_id >= :first ORDER BY operation_id LIMIT :limit;

-- name: events_newest
-- Events of the fleet, newest first.
SELECT * FROM scheduled_event ORDER BY sequence DESC LIMIT :limit;

-- name: events_newest_open
-- Open events of the fleet, newest first.
SELECT * FROM scheduled_event WHERE phase IN ('scheduled', 'started')
 ORDER BY sequence DESC LIMIT :limit;

-- name: events_of_scope
-- Events of one scope, newest first.
SELECT * FROM scheduled_event WHERE scope = :scope ORDER BY sequence DESC LIMIT :limit;

-- name: events_of_scope_open
-- Open events of one scope, newest first.
SELECT * FROM scheduled_event WHERE scope = :scope AND phase IN ('scheduled', 'started')
 ORDER BY sequence DESC LIMIT :limit;

-- name: event_known
-- Whether the scope has or ever had an event of that id.
SELECT event_id FROM scheduled_event WHERE event_id = :event_id AND scope = :scope;

-- name: operation_revision
-- Why update_operation wrote nothing: what is there instead.
SELECT revision FROM operation WHERE operation_id = :operation_id;

-- name: delete_operation_members
-- Make room for the members that follow.
DELETE FROM operation_member WHERE operation_id = :operation_id;

-- name: insert_operation_member
-- An event that the operation waits for.
INSERT INTO operation_member (operation_id, position, scope, event_id)
VALUES (:operation_id, :position, :scope, :event_id);

-- name: operations_open
-- All open operations, oldest first.
SELECT * FROM operation WHERE phase IN ('waiting', 'started') ORDER BY sequence;

-- name: operation_members_open
-- The members of all open operations.
SELECT operation_member.* FROM operation_member
  JOIN operation ON operation.operation_id = operation_member.operation_id
 WHERE operation.phase IN ('waiting', 'started')
 ORDER BY operation_member.operation_id, operation_member.position;

-- name: operation
-- One operation, open or ended.
SELECT * FROM operation WHERE operation_id = :operation_id;

-- name: operations_newest
-- Operations, newest first.
SELECT * FROM operation ORDER BY sequence DESC LIMIT :limit;

-- name: operations_newest_open
-- Open operations, newest first.
SELECT * FROM operation WHERE phase IN ('waiting', 'started')
 ORDER BY sequence DESC LIMIT :limit;

-- name: operation_members
-- The members of one operation.
SELECT * FROM operation_member WHERE operation_id = :operation_id ORDER BY position;

-- name: delete_action
-- An action that its owner no longer holds.
DELETE FROM action WHERE action_id = :action_id;

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

-- name: actions_of_event
-- The actions of one event, in their order.
SELECT * FROM action WHERE event_id = :event_id ORDER BY position;

-- name: actions_of_operation
-- The action of one operation, if it has one.
SELECT * FROM action WHERE operation_id = :operation_id ORDER BY position;

-- name: journal
-- Lines after a number, oldest first.
SELECT * FROM journal WHERE number > :after ORDER BY number LIMIT :limit;

-- name: journal_of_scope
-- Lines of one scope after a number, oldest first.
SELECT * FROM journal WHERE scope = :scope AND number > :after ORDER BY number LIMIT :limit;

-- name: journal_of_event
-- Lines of one event after a number, oldest first.
SELECT * FROM journal WHERE event_id = :event_id AND number > :after ORDER BY number LIMIT :limit;

-- name: journal_of_scope_and_event
-- Lines of one event in one scope after a number, oldest first.
SELECT * FROM journal WHERE event_id = :event_id AND scope = :scope AND number > :after
 ORDER BY number LIMIT :limit;

-- name: journal_end
-- The number of the newest line.
SELECT COALESCE(MAX(number), 0) AS number FROM journal;

-- name: delete_definition
-- A VM has left the fleet.
DELETE FROM definition WHERE vm = :vm;

-- name: definition
-- What a VM was when a host last showed it otherwise.
SELECT * FROM definition WHERE vm = :vm;

-- name: definition_digests
-- Which definitions there are, without their texts.
SELECT vm, digest FROM definition;

-- name: delete_departed_vm
-- A VM is to be forgotten that left long ago.
DELETE FROM departed_vm WHERE name = :name AND vm_id = :vm_id;

-- name: departed_vms
-- VMs that have left the fleet, those that left longest ago first.
SELECT name, vm_id, incarnation, left_ms FROM departed_vm ORDER BY left_ms, name, vm_id;

-- name: first_reads
-- The receipts of an event, oldest first.
SELECT * FROM receipt WHERE event_id = :event_id ORDER BY read_ms, vm;

-- name: remembered
-- The answer kept under a key.
SELECT * FROM remembered WHERE idempotency_key = :idempotency_key;

-- name: delete_remembered
-- Deletes the oldest answers, some at a time, once no caller sends their orders again.
DELETE FROM remembered WHERE idempotency_key IN
    (SELECT idempotency_key FROM remembered WHERE at_ms < :before_ms ORDER BY at_ms LIMIT :limit);

-- name: upsert_meta
-- Replace the heartbeat or the inventory.
INSERT INTO meta (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: meta
-- The heartbeat and the inventory.
SELECT name, value FROM meta;

-- name: upsert_unfinished_inventory
-- Note that the inventory is not applied whole yet.
INSERT INTO unfinished_inventory (only_one, about) VALUES (1, :about)
ON CONFLICT (only_one) DO UPDATE SET about = excluded.about;

-- name: delete_unfinished_inventory
-- The inventory is applied whole.
DELETE FROM unfinished_inventory;

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
UPDATE lineage SET commits = :commits;

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
