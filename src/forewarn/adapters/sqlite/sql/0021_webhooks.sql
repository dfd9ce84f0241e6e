-- Migration 21: where lines of the journal are sent, and how far that has come. A secret signs what is sent, so it is kept as it
-- is. `turn` grows with what an admin does; `failing_ms` counts the time in which it was tried in vain.
CREATE TABLE webhook (
    webhook_id       TEXT NOT NULL PRIMARY KEY,
    name             TEXT NOT NULL UNIQUE,
    url              TEXT NOT NULL,
    format           TEXT NOT NULL,
    scopes           TEXT NOT NULL,  -- JSON; empty: all
    kinds            TEXT NOT NULL,  -- JSON; empty: all
    batch            BIGINT NOT NULL CHECK (batch BETWEEN 1 AND 100),
    secret           TEXT NOT NULL,
    old_secret       TEXT,
    old_until_ms     BIGINT,
    number           BIGINT NOT NULL CHECK (number >= 0),
    generation       BIGINT NOT NULL,
    turn             BIGINT NOT NULL,
    made_ms          BIGINT NOT NULL,
    made_by          TEXT NOT NULL,
    failing_since_ms BIGINT,
    failures         BIGINT NOT NULL,
    failing_ms       BIGINT NOT NULL,
    failure          TEXT NOT NULL,
    disabled_ms      BIGINT,
    disabled_by      TEXT,
    disabled_because TEXT NOT NULL,
    CHECK ((old_secret IS NULL) = (old_until_ms IS NULL)),
    CHECK ((failing_since_ms IS NULL) = (failures = 0)),
    CHECK ((disabled_ms IS NULL) = (disabled_by IS NULL))
);
