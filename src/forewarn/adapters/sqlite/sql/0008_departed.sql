-- Migration 8: how far VMs that have left the fleet may have read. Their hosts remember that, so
-- a VM that comes back goes on above it.
CREATE TABLE departed_vm (
    name        TEXT NOT NULL,
    vm_id       TEXT NOT NULL,
    incarnation BIGINT NOT NULL CHECK (incarnation >= 1),
    left_ms     BIGINT NOT NULL,
    PRIMARY KEY (name, vm_id)
);
