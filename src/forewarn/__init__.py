"""Forewarn tells every VM what is about to happen to it, waits until it is ready, then does it."""

__version__: str


def __getattr__(name: str) -> str:
    # Asked for seldom, and what finds it takes its time to import.
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - see above

        return version("forewarn")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
