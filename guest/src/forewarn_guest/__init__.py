"""The guest side of scheduled events: a client, and an agent that prepares, approves and recovers.

Standard library only. It speaks to Forewarn and to the real service alike.
"""

__version__ = "0.1.0"
