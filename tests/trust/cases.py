"""The list of cases, and the table that docs/trust.md shows of it.

A case is a function of a `Place`: it captures and admits an artifact, does what its docstring says, and gives the path
that is then restored. What must come of it stands in its decorator.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import NamedTuple

from tests.trust.place import Place

# With full digests: the bytes are what they were, they differ, or the artifact can't be opened.
RESTORED, POISONED, UNTOUCHED = "restored", "poisoned", "untouched"


class Case(NamedTuple):
    """One row.

    Attributes:
        call: Does it.
        names: What the refusal's message must contain; nothing where it is admitted.
        digests: What a restore with full digests does.
        code: Of the refusal.
        wrong: It is admitted, and its bytes are wrong: what no fact of a file can tell.
    """

    call: Callable[[Place], pathlib.Path]
    names: tuple[str, ...]
    digests: str
    code: str
    wrong: bool

    @property
    def name(self) -> str:
        return self.call.__name__

    @property
    def done(self) -> str:
        return " ".join((self.call.__doc__ or "").split()).rstrip(".")


CASES: list[Case] = []


def case(
    *names: str, digests: str = RESTORED, code: str = "not_admitted", wrong: bool = False
) -> Callable[[Callable[[Place], pathlib.Path]], Callable[[Place], pathlib.Path]]:
    """Add a case to the list; without ``names`` it is one that is admitted."""

    def add(call: Callable[[Place], pathlib.Path]) -> Callable[[Place], pathlib.Path]:
        CASES.append(Case(call, names, digests, code if names else "", wrong))
        return call

    return add


def table() -> str:
    """The rows of docs/trust.md, "Case by case"."""
    ends = {
        RESTORED: "restored",
        POISONED: "`data_loss`, poisoned",
        UNTOUCHED: "refused too, untouched",
    }
    rows = [
        '| since the verification | `verify="none"` | the message names | with digests |',
        "| --- | --- | --- | --- |",
    ]
    for each in CASES:
        verdict = f"`{each.code}`" if each.names else "admitted, wrong bytes" if each.wrong else "admitted"
        names = ", ".join(f"`{name}`" for name in each.names)
        rows.append(f"| {each.done} | {verdict} | {names} | {ends[each.digests]} |")
    return "\n".join(rows) + "\n"
