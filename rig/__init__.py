"""Two hypervisors on one machine, with real guests: what `make rig` and `make test-rig` run.

Everything lives in namespaces of its own and in one temporary folder. Nothing here is imported by
the product.
"""
