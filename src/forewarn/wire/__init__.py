"""What crosses the wire, as bytes and JSON-ready values. Pure: no I/O, no clock, no logging."""
