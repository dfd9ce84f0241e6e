"""What runs first in the file, before anything of Forewarn: standard library only."""
