"""Programs for those who work on the repository. Nothing that is shipped imports them."""
