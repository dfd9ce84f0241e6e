"""`cloud.scenario`: a run of a script in a cloud."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.core.errors import Invalid
from forewarn.testing.background import Background
from forewarn.testing.tracebacks import for_refusals
from forewarn.testing.values import Event, event_of
from forewarn.wiring.simulate import Emulator

# What reads and runs scenarios is imported with the first of them: most tests have none.
if TYPE_CHECKING:
    from forewarn.emulator.scenarios.runner import Run
    from forewarn.emulator.scenarios.values import Scenario

OWN_SCRIPT = "script"  # what a script without a name is called
__tracebackhide__ = for_refusals


class ScenarioRun:
    """One run of a scenario. What it says is the case when it is asked."""

    def __init__(self, background: Background, run: Run) -> None:
        self._background = background
        self._run = run
        self.run_id = run.run_id
        self.name = run.scenario.name
        self.vm = run.target.vm

    def __repr__(self) -> str:
        return f"<ScenarioRun {self.run_id}: {self.name} on {self.vm}>"

    @property
    def events(self) -> tuple[Event, ...]:
        """The events that it has made so far, in the order of its steps."""
        found = self._background.call(lambda emulator: emulator.scenarios.events(self._run))
        return tuple(event_of(event) for event in found)

    @property
    def over(self) -> bool:
        """True when no step is left and everything that it made has ended."""
        return self._background.call(lambda emulator: emulator.scenarios.over(self._run))

    @property
    def refused(self) -> tuple[str, ...]:
        """Why steps were refused when their time had come; the other steps went on."""

        from forewarn.emulator.scenarios.values import StepPhase  # noqa: PLC0415 - see above

        async def work(_: Emulator) -> tuple[str, ...]:
            steps = [step for step in self._run.steps if step.phase is StepPhase.REFUSED]
            return tuple(f"Step {step.step.number}: {step.said}" for step in steps)

        return self._background.call(work)

    def to_end(self) -> None:
        """Turn the clock until it is over, or until nothing is due any more."""
        self._background.call(lambda emulator: emulator.scenarios.to_end(self.run_id))

    def stop(self) -> None:
        """Take no further step. What was done stays done: its events go on."""

        async def work(emulator: Emulator) -> None:
            emulator.scenarios.stop(self.run_id)

        self._background.call(work)


def scenario_of(script: str | Path) -> Scenario:
    """A shipped scenario by its name, a script by its path, or a script itself.

    A Path, or a text that ends in .toml, is a file. Raises NotFound or Invalid.
    """
    from forewarn.emulator.scenarios import library  # noqa: PLC0415 - see above
    from forewarn.emulator.scenarios.file import parse  # noqa: PLC0415

    if isinstance(script, str) and "\n" in script:
        return parse(script, name=OWN_SCRIPT)
    if isinstance(script, Path) or script.endswith(".toml"):
        file = Path(script)
        return parse(_text(file), name=file.stem)
    return library.load(script)


def _text(file: Path) -> str:
    from forewarn.emulator.scenarios.file import SCENARIO_BYTES_MAX  # noqa: PLC0415 - see above

    try:
        with file.open("rb") as stream:
            content = stream.read(SCENARIO_BYTES_MAX + 1)
        return content.decode("utf-8-sig")
    except OSError as error:
        why = error.strerror or str(error)
    except UnicodeDecodeError:
        why = "it is not UTF-8"
    raise Invalid(
        f"The scenario {file.absolute()} cannot be read: {why}.", "Give the path of a TOML file."
    )
