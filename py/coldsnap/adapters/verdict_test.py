"""Verdicts: unanimous or nobody, the same in every rank, and never without end."""

import dataclasses

import pytest

from coldsnap import errors
from coldsnap.adapters import verdict
from coldsnap.adapters.verdict import Outcome, Part

ROOT, OTHER = "a" * 64, "b" * 64


@dataclasses.dataclass
class Heard:
    """A rank that hears the given texts in the place of the other ranks'."""

    rank: int
    others: list[str]

    @property
    def size(self) -> int:
        return len(self.others) + 1

    def gather(self, text: str, timeout_s: float) -> list[str]:
        return [*self.others[: self.rank], text, *self.others[self.rank :]]


def decided(*parts: Part) -> Part:
    """What every one of the ranks decides."""
    texts = [verdict.json.dumps(dataclasses.asdict(part)) for part in parts]
    found = {
        verdict.before_building(Heard(rank, texts[:rank] + texts[rank + 1 :]), part)  # type: ignore[arg-type]
        for rank, part in enumerate(parts)
    }
    assert len(found) == 1  # all the same
    return found.pop()


def test_all_restore_the_same_artifact() -> None:
    assert decided(Part("i", ROOT, token="t"), Part("i", ROOT), Part("i", ROOT)).artifact == ROOT
    assert verdict.before_building(verdict.Alone(), Part("i", ROOT)) == Part("i", ROOT)


def test_one_that_can_t_keeps_all_from_restoring() -> None:
    found = decided(Part("i", ROOT, token="t"), Part("i", code="quarantined", why="its blob was damaged"))
    assert (found.artifact, found.code, found.identity, found.token) == ("", "ranks_disagree", "i", "t")
    assert found.why == "rank 1 can't restore: its blob was damaged"
    found = decided(Part("i", code="quarantined", why="damaged"), Part("i", ROOT))
    assert (found.artifact, found.why) == ("", "rank 0 can't restore: damaged")


def test_where_none_can_the_reason_stays_what_it_is() -> None:
    found = decided(Part("i", code="none", why="there is none", token="t"), Part("i", code="none", why="nor here"))
    assert found == Part("i", code="none", why="there is none", token="t")


def test_different_artifacts_and_identities_are_not_mixed() -> None:
    found = decided(Part("i", ROOT), Part("i", OTHER))
    assert (found.artifact, found.code) == ("", "ranks_disagree")
    assert "rank 1 bbbbbbbbbbbb" in found.why
    found = decided(Part("i", ROOT), Part("j", ROOT))
    assert (found.identity, found.artifact, found.code) == ("", "", "ranks_disagree")
    assert "rank 1 loads another model" in found.why


def test_one_failure_fails_all_with_its_rank_and_remedy() -> None:
    failed = Outcome.of(errors.DataLossError("extent 3 (w): piece 0", remedy="capture it again"))
    texts = [verdict.json.dumps(dataclasses.asdict(each)) for each in (Outcome(nbytes=1), failed)]
    for ranks, mine in ((Heard(0, texts[1:]), Outcome(nbytes=1)), (Heard(1, texts[:1]), failed)):
        with pytest.raises(errors.DataLossError) as caught:
            verdict.after(ranks, mine, "restore artifact a")  # type: ignore[arg-type]
        assert str(caught.value) == "restore artifact a: rank 1: extent 3 (w): piece 0; capture it again"


def test_a_rank_alone_fails_without_a_number() -> None:
    with pytest.raises(errors.InternalError, match=r"^restore: RuntimeError: no kernel$"):
        verdict.after(verdict.Alone(), Outcome.of(RuntimeError("no kernel")), "restore")


def test_bytes_add_up_and_the_slowest_counts() -> None:
    ranks = Heard(0, [verdict.json.dumps(dataclasses.asdict(Outcome(nbytes=5, seconds=0.5)))])
    found = verdict.after(ranks, Outcome(nbytes=3, seconds=0.25), "restore")  # type: ignore[arg-type]
    assert verdict.total(found) == (8, 0.5)
