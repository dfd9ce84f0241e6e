-- Migration 20: whether what a Redeploy moves loses its local disks. Before, every disk was kept.
ALTER TABLE scheduled_event ADD COLUMN lose_disk BIGINT NOT NULL DEFAULT 0 CHECK (lose_disk IN (0, 1));
ALTER TABLE operation ADD COLUMN lose_disk BIGINT NOT NULL DEFAULT 0 CHECK (lose_disk IN (0, 1));
ALTER TABLE action ADD COLUMN lose_disk BIGINT NOT NULL DEFAULT 0 CHECK (lose_disk IN (0, 1));
