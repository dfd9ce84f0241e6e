"""What tests of several rooms share: clocks, ids, waiting, fleets, and worlds to stand in.

No test lives here. What one room alone needs is in that room. Programs that a test or a make target
starts by their path are in `tests`, so that their imports are the imports of the tests.
"""
