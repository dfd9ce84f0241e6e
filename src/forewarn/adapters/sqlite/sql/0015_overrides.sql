-- Migration 13: why an operator approved an event in place of its VMs. Before, no reason was asked for.
ALTER TABLE scheduled_event ADD COLUMN override_reason TEXT NOT NULL DEFAULT '';
UPDATE scheduled_event SET override_reason = 'no reason was asked for at that time'
 WHERE event_id IN (SELECT event_id FROM journal
                     WHERE kind = 'approved' AND json_extract(detail, '$.by_kind') = 'operator');
