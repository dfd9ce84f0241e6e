-- Which database this is, and how many commits it has. One row, made when the database is opened
-- for the first time; a backup is the same database, a restored one is another.
CREATE TABLE lineage (
    database_id TEXT NOT NULL PRIMARY KEY,
    commits     BIGINT NOT NULL CHECK (commits >= 0)
);
