"""The outside world, one file per foreign system. Only `wiring` and the command line import it."""
