-- Migration 14: whether a VM has ever polled. It is known of those that read an event, or are alone in a
-- scope that was polled; of the others their next poll tells it.
ALTER TABLE vm ADD COLUMN has_polled BIGINT NOT NULL DEFAULT 0 CHECK (has_polled IN (0, 1));
UPDATE vm SET has_polled = 1
 WHERE name IN (SELECT vm FROM receipt)
    OR scope IN (SELECT scope.name FROM scope JOIN vm ON vm.scope = scope.name
                  WHERE scope.polled_ms IS NOT NULL GROUP BY scope.name HAVING COUNT(*) = 1);
