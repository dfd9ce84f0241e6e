"""How guests reach the endpoint of a host: by taps, bridges and sockets."""
