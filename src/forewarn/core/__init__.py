"""The rules: pure functions over frozen values. Nothing here asks the time, makes an id or waits."""
