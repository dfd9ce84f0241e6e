"""The emulator's own parts: time that can be turned, faults, scenarios. Never part of `serve`."""
