"""The conformance kit: black-box checks against any endpoint, ours or another's.

`run(url, options)` gives a Report. Nothing of the server is imported here.
"""

from forewarn.verify.options import BadOptions, OperatorFailed, Options
from forewarn.verify.report import Outcome, Report, Verdict
from forewarn.verify.runner import NothingAnswers, run

__all__ = [
    "run",
    "Options",
    "Report",
    "Outcome",
    "Verdict",
    "BadOptions",
    "NothingAnswers",
    "OperatorFailed",
]
