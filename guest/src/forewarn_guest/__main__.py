"""`python -m forewarn_guest`: the same as the program `forewarn-guest`."""

from __future__ import annotations

import sys

from forewarn_guest.cli import main

sys.exit(main())
