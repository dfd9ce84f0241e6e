"""What `make dist` runs: Forewarn and everything it needs, in one file to download and run."""
