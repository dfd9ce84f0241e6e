-- Migration 10: feed positions. The number of a commit is what lineage counts; shown_commit is that of
-- the last one that changed what hosts are shown of the scope. It is not known of earlier versions: 0.
ALTER TABLE scope ADD COLUMN shown_commit BIGINT NOT NULL DEFAULT 0 CHECK (shown_commit >= 0);

-- The lives of controls on this database. One row each, written with the first commit of that life:
-- so commits of a life that this database does not have are told from those that it has.
CREATE TABLE epoch (
    epoch_id     TEXT NOT NULL PRIMARY KEY CHECK (epoch_id <> ''),
    first_commit BIGINT NOT NULL UNIQUE CHECK (first_commit >= 1)
);
