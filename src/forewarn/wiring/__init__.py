"""Settings into running objects, by plain calls, top to bottom. The only importer of adapters."""

from forewarn.wiring.serve import CannotStart, Where, open_service, restore

__all__ = ["CannotStart", "Where", "open_service", "restore"]
