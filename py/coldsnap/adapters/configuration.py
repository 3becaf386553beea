"""What an engine's start is to do: one table for all engines, and who chose each value.

The engine's extra configuration (``{"coldsnap": {...}}``) > environment > default. What nobody knows is refused with what
is known, as everywhere in coldsnap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coldsnap import errors, settings, store_place
from coldsnap.settings import Setting

KEY = "coldsnap"
BACKEND = Setting("auto", "adapter-default")  # of restores and captures, where nobody chooses another
WHEN, IDENTITIES = ("load", "ready", "asked"), ("content", "manifest")
KNOWN = ("mode", "store", "artifact", "when", "identity", "control", "capture_rate")


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings of a start.

    Attributes:
        mode: ``auto`` (restore, else load and capture), ``capture``, ``restore`` (or refuse) or ``off``.
        store: Where artifacts are; its value is None where nobody named one.
        artifact: The only artifact to restore from, which is never written to; None: the store's.
        when: When a capture happens: at the end of loading (``load``), behind the first served requests (``ready``), or
            when the control socket is asked for it (``asked``).
        identity: What says which checkpoint it is: its ``content``, or the artifact's own ``manifest``.
        control: Path of the socket by which the running engine is asked; None: there is none.
        capture_rate: Bytes a second that a capture reads of an engine that serves.
    """

    mode: Setting
    store: Setting
    artifact: Setting
    when: Setting
    identity: Setting
    control: Setting
    capture_rate: Setting

    @property
    def may_restore(self) -> bool:
        return self.mode.value in ("auto", "restore")

    @property
    def may_capture(self) -> bool:
        return self.mode.value in ("auto", "capture") and self.artifact.value is None

    @property
    def must(self) -> bool:
        """Whether what the mode names has to happen, so that the start fails where it can't."""
        return self.mode.value in ("capture", "restore")

    def place(self, environ: Mapping[str, str]) -> Setting:
        """The store's path, and who chose it; the default where nobody did.

        Raises:
            PolicyRefusedError: Nobody named one, and nobody knows a home folder.
        """
        return self.store if self.store.value is not None else store_place.chosen(None, environ)


def resolve(extra: Any, environ: Mapping[str, str]) -> Configuration:
    """Find the settings of a start.

    Args:
        extra: The engine's extra configuration for its loader; what is no dict has nothing of ours.
        environ: Environment variables.
    Raises:
        RequestInvalidError: A key or a value is unknown, or two of them contradict each other.
    """
    ours = _ours(extra)
    found = Configuration(
        mode=settings.resolve_one(settings.MODE, ours.get("mode"), environ),
        store=settings.resolve_one(settings.STORE, ours.get("store"), environ),
        artifact=settings.resolve_one(settings.ARTIFACT, ours.get("artifact"), environ),
        when=_chosen("when", ours.get("when"), WHEN),
        identity=_chosen("identity", ours.get("identity"), IDENTITIES),
        control=settings.resolve_one(settings.CONTROL, ours.get("control"), environ),
        capture_rate=settings.resolve_one(settings.CAPTURE_RATE, ours.get("capture_rate"), environ),
    )
    if found.mode.value == "capture" and found.artifact.value is not None:
        raise errors.RequestInvalidError(
            "read the mode: it is capture, and an artifact is named, which is never written to",
            remedy="name a store, or leave the artifact out",
        )
    if found.when.value == "asked" and (found.control.value is None or found.mode.value == "capture"):
        why = (
            "no control socket is named"
            if found.control.value is None
            else "the mode is capture, which waits for nobody"
        )
        raise errors.RequestInvalidError(
            f"read when: it is asked, and {why}", remedy="name a socket by control, or give load or ready"
        )
    return found


def without_ours(extra: Any) -> Any:
    """The extra configuration that is left for the engine's own loader."""
    return {key: value for key, value in extra.items() if key != KEY} if isinstance(extra, Mapping) else extra


def _ours(extra: Any) -> Mapping[str, Any]:
    ours = extra.get(KEY) if isinstance(extra, Mapping) else None
    if ours is None:
        return {}
    if not isinstance(ours, Mapping):
        raise errors.RequestInvalidError(
            f"read {KEY} of the extra configuration: it is a {type(ours).__name__}",
            remedy=f"give an object with some of {', '.join(KNOWN)}",
        )
    for key in ours:
        if key not in KNOWN:
            raise errors.RequestInvalidError(
                f"read {KEY} of the extra configuration: {str(key)[:80]!r} is unknown",
                remedy=f"the known ones: {', '.join(KNOWN)}",
            )
    return ours


def _chosen(name: str, given: Any, known: tuple[str, ...]) -> Setting:
    if given is None:
        return Setting(known[0], "default")
    if given not in known:
        raise errors.RequestInvalidError(
            f"read {name}: {str(given)[:80]!r} is unknown", remedy=f"the known ones: {', '.join(known)}"
        )
    return Setting(given, "explicit")
