"""Forewarn tells every VM what is about to happen to it, waits until it is ready, then does it."""
