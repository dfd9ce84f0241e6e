"""Settings into running objects, by plain calls, top to bottom. The only importer of adapters."""
