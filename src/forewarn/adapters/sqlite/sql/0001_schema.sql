-- The tables of the store: TEXT and BIGINT only, times are UTC milliseconds in *_ms, booleans are
-- 0 or 1, tuples that no query looks into are JSON text. Nothing here is particular to SQLite.
-- This file is migration 1. The constraints are the last line of defence, not the rules.

-- Two rows: heartbeat_ms and inventory. Apart, because a heartbeat must not rewrite an inventory.
CREATE TABLE meta (
    name  TEXT NOT NULL PRIMARY KEY CHECK (name IN ('heartbeat_ms', 'inventory')),
    value TEXT NOT NULL
);

CREATE TABLE host (
    name     TEXT NOT NULL PRIMARY KEY,
    revision BIGINT NOT NULL CHECK (revision >= 0),
    capacity BIGINT CHECK (capacity >= 0),
    closed   BIGINT NOT NULL CHECK (closed IN (0, 1)),
    health   TEXT NOT NULL CHECK (health IN ('ok', 'degraded', 'failed')),
    fenced   BIGINT NOT NULL CHECK (fenced IN (0, 1)),
    listed   BIGINT NOT NULL CHECK (listed IN (0, 1))
);

CREATE TABLE scope (
    name                TEXT NOT NULL PRIMARY KEY,
    kind                TEXT NOT NULL CHECK (kind IN
        ('standalone', 'cloud-service', 'availability-set', 'placement-group')),
    revision            BIGINT NOT NULL CHECK (revision >= 0),
    incarnation         BIGINT NOT NULL CHECK (incarnation >= 1),
    terminate_notice_ms BIGINT NOT NULL CHECK (terminate_notice_ms >= 0),
    auto_approve        TEXT NOT NULL,
    enabled             BIGINT NOT NULL CHECK (enabled IN (0, 1)),
    polled_ms           BIGINT,
    hold_since_ms       BIGINT,
    hold_event_id       TEXT,
    hold_reason         TEXT,
    recoveries          TEXT NOT NULL,
    deleted             TEXT NOT NULL,
    CHECK ((hold_since_ms IS NULL) = (hold_event_id IS NULL)),
    CHECK ((hold_since_ms IS NULL) = (hold_reason IS NULL))
);

-- position: the order of the VMs within their scope; gaps are possible.
CREATE TABLE vm (
    name          TEXT NOT NULL PRIMARY KEY,
    scope         TEXT NOT NULL REFERENCES scope (name),
    position      BIGINT NOT NULL,
    vm_id         TEXT NOT NULL,
    update_domain BIGINT NOT NULL CHECK (update_domain >= 0),
    host          TEXT NOT NULL,
    priority      TEXT NOT NULL CHECK (priority IN ('regular', 'spot')),
    address       TEXT,
    listen        TEXT,
    tags          TEXT NOT NULL,
    fault_domain  BIGINT NOT NULL CHECK (fault_domain >= 0),
    zone          TEXT NOT NULL,
    os_type       TEXT NOT NULL,
    computer_name TEXT NOT NULL
);
CREATE INDEX vm_of_scope ON vm (scope, position);

-- sequence: the order in which operations were made, over the whole fleet.
CREATE TABLE operation (
    operation_id          TEXT NOT NULL PRIMARY KEY,
    sequence              BIGINT NOT NULL UNIQUE,
    revision              BIGINT NOT NULL CHECK (revision >= 0),
    host                  TEXT NOT NULL,
    event_type            TEXT NOT NULL CHECK (event_type IN
        ('Freeze', 'Reboot', 'Redeploy', 'Preempt', 'Terminate')),
    cause                 TEXT NOT NULL CHECK (cause IN
        ('order', 'eviction', 'maintenance', 'degraded', 'failure')),
    phase                 TEXT NOT NULL CHECK (phase IN
        ('waiting', 'started', 'ended')),  -- waiting -> started -> ended, waiting -> ended
    ordered_ms            BIGINT NOT NULL,
    ordered_by            TEXT NOT NULL,
    ordered_not_before_ms BIGINT,
    broke_domains_by      TEXT,
    named                 TEXT NOT NULL,
    started_ms            BIGINT,
    deadline_ms           BIGINT,
    ended_ms              BIGINT,
    outcome               TEXT NOT NULL
);
CREATE INDEX operation_open ON operation (sequence) WHERE phase IN ('waiting', 'started');

-- The scope's name, not a reference: what ended stays when its scope is removed.
CREATE TABLE operation_member (
    operation_id TEXT NOT NULL REFERENCES operation (operation_id),
    position     BIGINT NOT NULL,
    scope        TEXT NOT NULL,
    event_id     TEXT NOT NULL,
    PRIMARY KEY (operation_id, position)
);

-- sequence: the order in which events were scheduled, over the whole fleet.
CREATE TABLE scheduled_event (
    event_id              TEXT NOT NULL PRIMARY KEY,
    sequence              BIGINT NOT NULL UNIQUE,
    scope                 TEXT NOT NULL,
    event_type            TEXT NOT NULL CHECK (event_type IN
        ('Freeze', 'Reboot', 'Redeploy', 'Preempt', 'Terminate')),
    event_source          TEXT NOT NULL CHECK (event_source IN ('Platform', 'User')),
    cause                 TEXT NOT NULL CHECK (cause IN
        ('order', 'eviction', 'maintenance', 'degraded', 'failure')),
    phase                 TEXT NOT NULL CHECK (phase IN
        ('scheduled',    -- -> started, -> canceled
         'started',      -- -> completed, -> failed
         'completed', 'failed', 'canceled')),
    update_domain         BIGINT NOT NULL CHECK (update_domain >= 0),
    host                  TEXT NOT NULL,
    resources             TEXT NOT NULL,
    not_before_ms         BIGINT NOT NULL,
    minimum_notice_ms     BIGINT NOT NULL CHECK (minimum_notice_ms >= 0),
    scheduled_ms          BIGINT NOT NULL,
    description           TEXT NOT NULL,
    duration_s            BIGINT NOT NULL CHECK (duration_s >= -1),
    silent                BIGINT NOT NULL CHECK (silent IN (0, 1)),
    ordered_not_before_ms BIGINT,
    ordered_by            TEXT NOT NULL,
    operation_id          TEXT,
    breaks_domains        BIGINT NOT NULL CHECK (breaks_domains IN (0, 1)),
    appeared_incarnation  BIGINT NOT NULL CHECK (appeared_incarnation >= 0),
    shown_ms              BIGINT,
    unreadable_ms         BIGINT NOT NULL,
    approved_ms           BIGINT,
    approved_by           TEXT,
    started_ms            BIGINT,
    deadline_ms           BIGINT,
    ended_ms              BIGINT,
    outcome               TEXT NOT NULL,
    CHECK (phase <> 'scheduled' OR started_ms IS NULL),
    CHECK ((phase IN ('scheduled', 'started')) = (ended_ms IS NULL)),
    CHECK (resources <> '[]' OR phase NOT IN ('scheduled', 'started'))
);
CREATE INDEX scheduled_event_of_scope ON scheduled_event (scope, sequence);
CREATE INDEX scheduled_event_open ON scheduled_event (sequence)
    WHERE phase IN ('scheduled', 'started');

-- Owned by an event or by an operation, never by both.
CREATE TABLE action (
    action_id    TEXT NOT NULL PRIMARY KEY,
    event_id     TEXT REFERENCES scheduled_event (event_id),
    operation_id TEXT REFERENCES operation (operation_id),
    position     BIGINT NOT NULL,
    kind         TEXT NOT NULL CHECK (kind IN
        ('freeze-host', 'reboot-host', 'reboot-vm', 'move-vm', 'start-vm', 'delete-vm')),
    host         TEXT,
    vm           TEXT,
    target_host  TEXT,
    duration_s   BIGINT NOT NULL,
    phase        TEXT NOT NULL CHECK (phase IN
        ('pending', 'claimed', 'ended')),  -- pending <-> claimed (a lapsed lease) -> ended
    epoch        BIGINT NOT NULL CHECK (epoch >= 0),
    boot_id      TEXT,
    outcome      TEXT CHECK (outcome IN ('done', 'failed', 'lost')),
    detail       TEXT NOT NULL,
    CHECK ((event_id IS NULL) <> (operation_id IS NULL)),
    CHECK ((phase = 'ended') = (outcome IS NOT NULL))
);
CREATE INDEX action_of_event ON action (event_id, position);
CREATE INDEX action_of_operation ON action (operation_id, position);

-- Append-only; nothing updates or deletes a line.
CREATE TABLE journal (
    number       BIGINT NOT NULL PRIMARY KEY CHECK (number >= 1),
    kind         TEXT NOT NULL,
    at_ms        BIGINT NOT NULL,
    scope        TEXT,
    event_id     TEXT,
    operation_id TEXT,
    host         TEXT,
    vm           TEXT,
    by_whom      TEXT,
    detail       TEXT NOT NULL
);
CREATE INDEX journal_of_scope ON journal (scope, number);
CREATE INDEX journal_of_event ON journal (event_id, number);

CREATE TABLE receipt (
    event_id TEXT NOT NULL,
    vm       TEXT NOT NULL,
    scope    TEXT NOT NULL,
    read_ms  BIGINT NOT NULL,
    PRIMARY KEY (event_id, vm)
);

CREATE TABLE remembered (
    idempotency_key TEXT NOT NULL PRIMARY KEY,
    fingerprint     TEXT NOT NULL,
    answer          TEXT NOT NULL,
    at_ms           BIGINT NOT NULL
);
CREATE INDEX remembered_oldest ON remembered (at_ms);
