"""The colours of a report: those of data are the same in light and dark, all others change with the reader's choice.

A plot is drawn once, in light colours. In its SVG each colour that changes is then the CSS variable of its role, and the
page gives those variables their values.
"""

from __future__ import annotations

import re

# Role -> colour in light, in dark. Light ones are different from each other and from the data's: `themed` goes by them.
ROLES = {
    "ink": ("#1f2328", "#f0f6fc"),
    "soft": ("#59636e", "#a4acb5"),
    "grid": ("#d1d9e0", "#3d444d"),
    "surface": ("#fffffe", "#151b23"),
    "page": ("#f3f5f7", "#0b0f14"),
    "link": ("#0a5cad", "#6cb6ff"),
    "heat0": ("#eaf2fa", "#16293d"),
    "heat1": ("#cfe1f2", "#1b3a59"),
    "heat2": ("#a9cbe8", "#214e79"),
    "heat3": ("#7db0d9", "#2c6699"),
    "heat4": ("#3377af", "#5b9bd0"),
    "heat5": ("#2368a2", "#7fb2dd"),
    "heat6": ("#0d437a", "#b5d6f2"),
}
HEAT_STEPS = 7

# Of Okabe and Ito, "Color Universal Design" (2008): people with any kind of colour blindness tell them apart.
DATA = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8795a5", "#8c564b")
OF_NAME = {"buffered": DATA[0], "direct": DATA[1], "auto": DATA[2], "gds": DATA[3]}
OF_NAME |= {"coldsnap": DATA[0], "coldsnap-crc32": DATA[0]}
OTHER = DATA[4]
_DARK = (DATA[0], DATA[7])


def light(role: str) -> str:
    """The colour to draw a role with."""
    return ROLES[role][0]


def words_on(data: str) -> str:
    """The colour of words on one of the data's colours, the same in both themes."""
    return "#ffffff" if data in _DARK else "#000000"


def heat(share: float) -> tuple[str, str]:
    """The roles of a cell's colour and of the text on it, for a share from 0 to 1 of the largest value."""
    step = min(int(share * HEAT_STEPS), HEAT_STEPS - 1)
    return f"heat{step}", "ink" if step <= HEAT_STEPS // 2 else "surface"


def themed(svg: str) -> str:
    """The SVG with a CSS variable in the place of each colour that has a role."""
    role_of = {light: role for role, (light, _) in ROLES.items()}

    def variable(found: re.Match[str]) -> str:
        role = role_of.get(found[2].lower())
        return f"{found[1]}var(--{role})" if role else found[0]

    return re.sub(r"((?:fill|stroke): ?)(#[0-9a-fA-F]{6})\b", variable, svg)


def variables(dark: bool) -> str:
    """The CSS declarations of all roles."""
    return "".join(f"--{role}:{colours[dark]};" for role, colours in ROLES.items())
