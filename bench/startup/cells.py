"""What a start-up matrix is made of: cases, and each of them by load format, engine caches and page cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from coldsnap import errors

CASES = ("inproc-full", "inproc-text", "multiproc-full", "multiproc-text", "serve-full", "serve-text")
STATES = ("cold", "warm")
PEERS = (
    "fastsafetensors",
    "runai_streamer",
    "instanttensor",
)  # load formats of vLLM's whose packages come apart from it
_LISTS = ("--cases", "--formats", "--caches", "--pages")


@dataclass(frozen=True)
class Cell:
    """One combination, sampled `repeats` times.

    Attributes:
        case: One of `CASES`: the topology, and whether the towers of other modalities are built.
        load_format: vLLM's ``--load-format``.
        caches: ``cold``: the engine finds empty cache folders; ``warm``: those that starts of the same case filled.
        pages: ``cold``: checkpoint and artifact come from the drive; ``warm``: from the page cache.
    """

    case: str
    load_format: str
    caches: str
    pages: str

    @property
    def topology(self) -> str:
        """``inproc``, ``multiproc`` or ``serve``."""
        return self.case.partition("-")[0]

    @property
    def towers(self) -> str:
        """``full`` or ``text``."""
        return self.case.partition("-")[2]

    @property
    def label(self) -> str:
        return f"{self.case} {self.load_format}, caches {self.caches}, pages {self.pages}"


def cells_of(cases: Sequence[str], formats: Sequence[str], caches: Sequence[str], pages: Sequence[str]) -> list[Cell]:
    """Every combination; formats beside each other, since they are what is compared."""
    return [Cell(*each) for each in _product(cases, caches, pages, formats)]


def _product(*axes: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
    cases, caches, pages, formats = axes
    for case in cases:
        for cache in caches:
            for page in pages:
                for load_format in formats:
                    yield case, load_format, cache, page


def in_turns(cells: Sequence[Cell], repeats: int) -> Iterator[tuple[int, Cell]]:
    """The order of the samples: every cell once a round, every other round backwards.

    A machine that gets slower or faster by the hour does so for all cells alike: over two rounds each cell's samples
    lie around the same moment.

    Yields:
        The round, from 0, and the cell.
    """
    for number in range(repeats):
        for cell in reversed(cells) if number % 2 else cells:
            yield number, cell


def joined(argv: Sequence[str]) -> list[str]:
    """Turn ``--cases A B`` into ``--cases=A,B``, for each flag that takes a list; the rest stays as it is."""
    found: list[str] = []
    taking = False
    for word in argv:
        name, equals, value = word.partition("=")
        if name in _LISTS:
            found.append(f"{name}={value}" if equals else f"{name}=")
            taking = True
        elif taking and not word.startswith("-"):
            found[-1] += word if found[-1].endswith("=") else f",{word}"
        else:
            found.append(word)
            taking = False
    return found


def checked(flag: str, words: Sequence[str], known: Sequence[str] | None) -> list[str]:
    """Give a list flag's words, each once.

    Raises:
        RequestInvalidError: There are none, one stands twice, or one is not among `known` (None: anything is).
    """
    found = [word.strip() for word in words if word.strip()]
    if not found:
        raise errors.RequestInvalidError(
            f"read {flag}: the list is empty", remedy=f"name one of {', '.join(known or ())}"
        )
    for index, word in enumerate(found):
        if known is not None and word not in known:
            raise errors.RequestInvalidError(f"read {flag}: {word!r} is not known", remedy=f"known: {', '.join(known)}")
        if word in found[:index]:
            raise errors.RequestInvalidError(f"read {flag}: {word!r} stands there twice", remedy="name each once")
    return found
