"""Scenarios: scripts of orders on the emulator's clock, and their runs."""
