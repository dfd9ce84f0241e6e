"""What `make bench` runs: the service as it is started by a user, measured against named targets.

Every figure comes from a real `forewarn serve` process in a folder of its own, on loopback only.
Nothing here is imported by the product or by the tests.
"""
