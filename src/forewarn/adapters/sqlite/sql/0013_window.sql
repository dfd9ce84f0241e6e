-- Migration 12: the window of an order, outside of which nothing of it starts. Both are NULL without one.
ALTER TABLE scheduled_event ADD COLUMN window_start_ms BIGINT;
ALTER TABLE scheduled_event ADD COLUMN window_end_ms BIGINT CHECK (window_end_ms > window_start_ms);
ALTER TABLE operation ADD COLUMN window_start_ms BIGINT;
ALTER TABLE operation ADD COLUMN window_end_ms BIGINT CHECK (window_end_ms > window_start_ms);
