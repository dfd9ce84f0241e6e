"""VMs and hosts on libvirt. One module of it imports the library."""
