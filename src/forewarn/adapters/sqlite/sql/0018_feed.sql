-- Migration 18: what makes the number of a line unique, and which lines are still there.

-- Whose journal it is. One row; a restored database keeps it. Lines up to pruned_through may be gone.
CREATE TABLE journal_extent (
    installation_id TEXT NOT NULL PRIMARY KEY CHECK (installation_id <> ''),
    pruned_through  BIGINT NOT NULL CHECK (pruned_through >= 0)
);
INSERT INTO journal_extent (installation_id, pruned_through)
SELECT lower(hex(randomblob(8))), COALESCE(MAX(json_extract(detail, '$.last_line')), 0)
  FROM journal WHERE kind = 'pruned';

-- A restore begins a generation, with the number of its first line.
CREATE TABLE journal_generation (
    generation   BIGINT NOT NULL PRIMARY KEY CHECK (generation >= 1),
    first_number BIGINT NOT NULL CHECK (first_number >= 1)
);
INSERT INTO journal_generation (generation, first_number) VALUES (1, 1);
