"""The colours of a report can be read and told apart, in both themes."""

from __future__ import annotations

import itertools

import pytest

from coldsnap._bench.html import theme

_TEXT, _GRAPHICS = 4.5, 3.0  # the least contrasts of WCAG 2.2, 1.4.3 and 1.4.11


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG defines it, 1 to 21."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_words_can_be_read(dark: bool) -> None:
    for words, ground in itertools.product(("ink", "soft", "link"), ("surface", "page")):
        assert contrast(theme.ROLES[words][dark], theme.ROLES[ground][dark]) >= _TEXT, (words, ground)
    for step in range(theme.HEAT_STEPS + 1):
        ground, words = theme.heat(step / theme.HEAT_STEPS)
        assert contrast(theme.ROLES[words][dark], theme.ROLES[ground][dark]) >= _TEXT, (step, words)


def test_words_on_data_can_be_read() -> None:
    for colour in theme.DATA:
        assert contrast(theme.words_on(colour), colour) >= _TEXT, colour


@pytest.mark.parametrize("dark", [False, True])
def test_the_strength_of_a_cell_grows_with_its_value(dark: bool) -> None:
    surface = theme.ROLES["surface"][dark]
    steps = [contrast(theme.ROLES[f"heat{step}"][dark], surface) for step in range(theme.HEAT_STEPS)]
    assert steps == sorted(steps)
    assert steps[-1] >= _GRAPHICS


def test_only_what_has_a_role_changes_with_the_theme() -> None:
    lights = [light.lower() for light, _ in theme.ROLES.values()]
    assert len(set(lights)) == len(lights)
    assert not set(lights) & {*theme.DATA, "#000000", "#ffffff"}
    svg = f'<path style="fill: {theme.light("ink")}; stroke: {theme.DATA[0]}" d="#1f2328"/><use href="#1f2328"/>'
    assert theme.themed(svg) == (
        f'<path style="fill: var(--ink); stroke: {theme.DATA[0]}" d="#1f2328"/><use href="#1f2328"/>'
    )
    for role, (light, dark) in theme.ROLES.items():
        assert f"--{role}:{light};" in theme.variables(dark=False)
        assert f"--{role}:{dark};" in theme.variables(dark=True)
