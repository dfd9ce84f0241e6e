"""Hypervisors and VMs that exist in memory only."""
