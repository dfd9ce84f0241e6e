"""For tests: a cloud in the background. `Cloud` here; the fixture is `forewarn.pytest_plugin`."""

from forewarn.testing.cloud import Cloud

__all__ = ["Cloud"]
