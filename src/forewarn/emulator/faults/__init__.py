"""Faults of the endpoint: their kinds, the book of those in force, and the API."""
