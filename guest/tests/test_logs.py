"""Log lines: what lasts is said once, and what is remembered for that is bounded."""

from __future__ import annotations

import io

from forewarn_guest.logs import SUBJECTS_MAX, Log


def test_what_lasts_is_said_once_and_again_when_it_becomes_something_else() -> None:
    lines = io.StringIO()
    log = Log(stream=lines)
    for why in ("full", "full", "broken", "broken"):
        log.once("disk", "the disk", why=why)
    assert [line.split("why=")[1] for line in lines.getvalue().splitlines()] == ["full", "broken"]
    log.over("disk", "the disk is well")
    log.over("disk", "the disk is well")
    assert lines.getvalue().count("is well") == 1


def test_subjects_without_end_do_not_fill_the_memory() -> None:
    log = Log(stream=io.StringIO())
    for number in range(3 * SUBJECTS_MAX):
        log.once(f"subject {number}", "there is trouble")
    assert len(log._said) == SUBJECTS_MAX


def test_a_value_cannot_make_a_line_of_its_own() -> None:
    lines = io.StringIO()
    Log(stream=lines).warning("trouble", why="a\nb\r\u2028c\x1b[31m", more='"x" level=error')
    assert len(lines.getvalue().splitlines()) == 1
    assert "\x1b" not in lines.getvalue()
