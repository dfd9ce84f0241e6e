"""The link as control serves it: over HTTPS, and in process."""
