"""Hosts as control knows them: members, their turns, reports and claims, and the feed they read."""
