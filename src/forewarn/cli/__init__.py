"""The command line: everything an operator does, over the operator API; and `serve`."""
