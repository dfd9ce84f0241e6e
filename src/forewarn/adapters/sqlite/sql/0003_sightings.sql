-- Migration 3: hosts with a daemon of their own, and what they show.
ALTER TABLE host ADD COLUMN joined BIGINT NOT NULL DEFAULT 0 CHECK (joined IN (0, 1));

-- What another host needs to start a VM. Not a reference: a VM may leave its scope for another.
CREATE TABLE definition (
    vm         TEXT NOT NULL PRIMARY KEY,
    host       TEXT NOT NULL,
    definition TEXT NOT NULL,
    digest     TEXT NOT NULL,
    seen_ms    BIGINT NOT NULL
);
