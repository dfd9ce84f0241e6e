"""The outside world, a module or package for each system. Only wiring and commands import it."""
