-- Migration 19: events that were postponed. The one that was withdrawn and the one that was announced for it name
-- each other; either may be gone after retention_days. Of an operation that is done once to its host, how often and by
-- how much in all it was postponed is counted there.
ALTER TABLE scheduled_event ADD COLUMN postponed_from TEXT;
ALTER TABLE scheduled_event ADD COLUMN postponed_to TEXT CHECK (postponed_to IS NULL OR phase = 'canceled');
ALTER TABLE scheduled_event ADD COLUMN postponements BIGINT NOT NULL DEFAULT 0 CHECK (postponements >= 0);
ALTER TABLE scheduled_event ADD COLUMN postponed_ms BIGINT NOT NULL DEFAULT 0 CHECK (postponed_ms >= 0);
ALTER TABLE operation ADD COLUMN postponements BIGINT NOT NULL DEFAULT 0 CHECK (postponements >= 0);
ALTER TABLE operation ADD COLUMN postponed_ms BIGINT NOT NULL DEFAULT 0 CHECK (postponed_ms >= 0);
