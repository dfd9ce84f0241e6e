-- Migration 17: who did something, by kind and id beside the name, and the tokens that let people and programs in. Of what
-- is older the name alone is known; of approvals the journal also knew the kind.
ALTER TABLE journal ADD COLUMN by_kind TEXT;
ALTER TABLE journal ADD COLUMN by_id TEXT;
ALTER TABLE scheduled_event ADD COLUMN ordered_by_kind TEXT;
ALTER TABLE scheduled_event ADD COLUMN ordered_by_id TEXT;
ALTER TABLE scheduled_event ADD COLUMN approved_by_kind TEXT;
ALTER TABLE operation ADD COLUMN ordered_by_kind TEXT;
ALTER TABLE operation ADD COLUMN ordered_by_id TEXT;

-- The secret itself is kept nowhere: `secret_hash` is its SHA-256. A token that has ended stays for a while, to be listed.
CREATE TABLE token (
    token_id    TEXT NOT NULL PRIMARY KEY,
    name        TEXT NOT NULL,
    role        TEXT NOT NULL CHECK (role IN ('viewer', 'owner', 'operator', 'admin')),
    scopes      TEXT NOT NULL,  -- JSON
    secret_hash TEXT NOT NULL,
    made_ms     BIGINT NOT NULL,
    made_by     TEXT NOT NULL,
    expires_ms  BIGINT NOT NULL,
    rotated_ms  BIGINT,
    used_ms     BIGINT,
    revoked_ms  BIGINT,
    revoked_by  TEXT,
    CHECK ((revoked_ms IS NULL) = (revoked_by IS NULL)),
    CHECK ((role = 'owner') = (scopes <> '[]'))
);
