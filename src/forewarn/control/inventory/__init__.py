"""Inventory files as control reads and applies them."""
