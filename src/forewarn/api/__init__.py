"""The operator side: a REST API under /v1, and /metrics."""
