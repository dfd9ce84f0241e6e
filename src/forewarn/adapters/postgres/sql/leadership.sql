-- What a database on PostgreSQL has beside the tables of the store. TEXT and BIGINT only, as there.

-- Who leads: one row, the first statement of every batch. `epoch` is one leadership, `batch` the number of the last commit,
-- `renewed_ms` its time by the clock of the database. An empty holder has resigned. It changes with every commit, so its
-- page has room for the next versions of it.
CREATE TABLE leadership (
    id          BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    epoch       BIGINT NOT NULL CHECK (epoch >= 0),
    batch       BIGINT NOT NULL CHECK (batch >= 0),
    holder      TEXT NOT NULL,
    address     TEXT NOT NULL,
    backend_pid BIGINT,
    renewed_ms  BIGINT NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
INSERT INTO leadership (id, epoch, batch, holder, address, renewed_ms) VALUES (1, 0, 0, '', '', 0);

-- Up to which migration the schema is.
CREATE TABLE schema_version (
    only_one BIGINT NOT NULL PRIMARY KEY CHECK (only_one = 1),
    version  BIGINT NOT NULL CHECK (version >= 1)
);

INSERT INTO journal_extent (installation_id, pruned_through)
VALUES (substr(replace(gen_random_uuid()::text, '-', ''), 1, 16), 0);
INSERT INTO journal_generation (generation, first_number) VALUES (1, 1);

-- Ends the transaction that it is called in if not as many rows were written as had to be. A batch is sent whole, with its
-- COMMIT: a count of the rows afterwards is a count of what is durable already.
CREATE FUNCTION forewarn_expect(written BIGINT, wanted BIGINT, step text) RETURNS BIGINT LANGUAGE plpgsql AS $$
BEGIN
    IF written <> wanted THEN
        RAISE EXCEPTION USING ERRCODE = 'FW001', MESSAGE = step;
    END IF;
    RETURN written;
END $$;
