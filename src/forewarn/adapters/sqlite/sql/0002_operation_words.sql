-- Migration 2: what an order on a host said of its events, for VMs that arrive after the order.
-- NULL where it said nothing.
ALTER TABLE operation ADD COLUMN duration_s BIGINT CHECK (duration_s >= 0);
ALTER TABLE operation ADD COLUMN description TEXT;
