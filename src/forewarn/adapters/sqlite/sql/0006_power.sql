-- Migration 5: VMs that their owners switched off.
ALTER TABLE vm ADD COLUMN off BIGINT NOT NULL DEFAULT 0 CHECK (off IN (0, 1));
