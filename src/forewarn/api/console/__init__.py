"""The console: pages for people, over the same routes, rights and fleet as the operator API.

Nothing here is imported before the first request to /console (`mount`).
"""
