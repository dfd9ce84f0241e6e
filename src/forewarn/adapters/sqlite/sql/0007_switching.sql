-- Migration 7: VMs that went down with their hosts, and the boots that show it; actions that do
-- nothing to a VM that runs, and that they did nothing.
ALTER TABLE vm ADD COLUMN went_down BIGINT NOT NULL DEFAULT 0 CHECK (went_down IN (0, 1));
ALTER TABLE host ADD COLUMN boot_id TEXT;

-- The outcomes of an action stand in a CHECK, which only a new table can have otherwise.
CREATE TABLE action_after (
    action_id    TEXT NOT NULL PRIMARY KEY,
    event_id     TEXT REFERENCES scheduled_event (event_id),
    operation_id TEXT REFERENCES operation (operation_id),
    position     BIGINT NOT NULL,
    kind         TEXT NOT NULL CHECK (kind IN
        ('freeze-host', 'reboot-host', 'reboot-vm', 'move-vm', 'start-vm', 'define-vm',
         'find-vm', 'delete-vm')),
    host         TEXT,
    vm           TEXT,
    target_host  TEXT,
    duration_s   BIGINT NOT NULL,
    phase        TEXT NOT NULL CHECK (phase IN
        ('pending', 'claimed', 'ended')),  -- pending <-> claimed (a lapsed lease) -> ended
    epoch        BIGINT NOT NULL CHECK (epoch >= 0),
    boot_id      TEXT,
    outcome      TEXT CHECK (outcome IN ('done', 'failed', 'lost', 'spared')),
    detail       TEXT NOT NULL,
    target_failed BIGINT NOT NULL DEFAULT 0 CHECK (target_failed IN (0, 1)),
    only_off     BIGINT NOT NULL DEFAULT 0 CHECK (only_off IN (0, 1)),
    CHECK ((event_id IS NULL) <> (operation_id IS NULL)),
    CHECK ((phase = 'ended') = (outcome IS NOT NULL))
);
INSERT INTO action_after (action_id, event_id, operation_id, position, kind, host, vm, target_host,
                          duration_s, phase, epoch, boot_id, outcome, detail, target_failed)
SELECT action_id, event_id, operation_id, position, kind, host, vm, target_host, duration_s, phase,
       epoch, boot_id, outcome, detail, target_failed
  FROM action;
DROP TABLE action;
ALTER TABLE action_after RENAME TO action;
CREATE INDEX action_of_event ON action (event_id, position);
CREATE INDEX action_of_operation ON action (operation_id, position);
