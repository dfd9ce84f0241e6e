"""The host side: listeners, identity, the documents it shows, and what it does to VMs."""
