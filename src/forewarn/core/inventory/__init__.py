"""Which VMs exist, where and in which scope, as an inventory file and the reports of hosts say."""
