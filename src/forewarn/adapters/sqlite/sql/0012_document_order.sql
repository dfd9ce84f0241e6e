-- Migration 12: documents show Started events first, then by NotBefore; before, all as scheduled. Where that
-- puts the events of a scope in another order, its guests read another document: it gets the next incarnation.
UPDATE scope SET incarnation = incarnation + 1, revision = revision + 1
 WHERE EXISTS (
    SELECT 1
      FROM scheduled_event AS earlier
      JOIN scheduled_event AS later ON later.scope = earlier.scope AND later.sequence > earlier.sequence
     WHERE earlier.scope = scope.name
       AND earlier.silent = 0 AND later.silent = 0
       AND earlier.phase = 'scheduled'
       AND (later.phase = 'started'
            OR later.phase = 'scheduled' AND later.not_before_ms < earlier.not_before_ms));
-- No host has been told so under a number of a commit: each is told everything once.
DELETE FROM epoch;
