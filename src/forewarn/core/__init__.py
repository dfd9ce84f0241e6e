"""The rules: pure functions over frozen values. Nothing here asks the time or makes an id."""
