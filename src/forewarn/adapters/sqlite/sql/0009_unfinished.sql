-- Migration 9: an inventory that is decided and not applied whole yet, of which meta has the text.
-- One row while there is one; what it says is JSON for the control that goes on with it.
CREATE TABLE unfinished_inventory (
    only_one BIGINT NOT NULL PRIMARY KEY CHECK (only_one = 1),
    about    TEXT NOT NULL CHECK (about <> '')
);
