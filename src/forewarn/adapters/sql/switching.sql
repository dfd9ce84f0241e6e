-- Migration 7: VMs that went down with their hosts, and the boots that show it.
ALTER TABLE vm ADD COLUMN went_down BIGINT NOT NULL DEFAULT 0 CHECK (went_down IN (0, 1));
ALTER TABLE host ADD COLUMN boot_id TEXT;
