"""Giving a model that was built on the meta device the memory that its artifact describes.

One storage for each extent, and the views, aliases and ties that were captured over it. A tensor that the model has is
exchanged in place, so that whatever else refers to it - a kernel object, a list, a closure - refers to the new one; its
class and ``__dict__`` stay. The bytes are undefined until a restore.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch

from coldsnap import errors
from coldsnap.adapters import kinds
from coldsnap.adapters.walker import Slot, Walked, never, walk
from coldsnap.artifact import Artifact
from coldsnap.destinations import torch_destinations

_PLAIN = kinds.name_of(torch.Tensor)
_PARAMETER = kinds.name_of(torch.nn.Parameter)


class _Wanted(NamedTuple):
    """A tensor to be: memory of the right layout, and all the names of one object with the role under each."""

    plain: torch.Tensor
    roles: dict[str, str]
    attrs: dict[str, dict[str, str]]


def materialise(
    model: torch.nn.Module,
    artifact: Artifact,
    device: torch.device | str,
    *,
    stop: Callable[[object], bool] = never,
    skip: Callable[[str, object], bool] = never,
) -> dict[str, torch.Tensor]:
    """Give a model's tensors memory as captured; tensors that the artifact does not know stay as they are.

    Args:
        model: As constructed, on the meta device.
        artifact: What it is to become. Small tensors in host memory get their bytes from its manifest at once.
        device: Where the memory is taken.
        stop: As of `coldsnap.adapters.walker.walk`, as is ``skip``.
        skip: See there.
    Returns:
        Destinations by name for `coldsnap.hydrate`. Captured tensors inside objects that the model does not have yet are
        left out: the engine has to make them again.
    Raises:
        LayoutError: The model has no module where the artifact has a tensor of one, or not the class of parameter.
        OutOfMemoryError: The memory is not there.
    """
    placing = _Placing(walk(model, stop=stop, skip=skip))
    on_host = _wanted_on_host(artifact.scalars.get("coldsnap.host", {}))
    found = placing.place_all([*_wanted(artifact, torch_destinations(artifact, str(device))), *on_host])
    return {name: found[name] for name in artifact if name in found}


def _wanted(artifact: Artifact, made: Mapping[str, torch.Tensor]) -> Iterable[_Wanted]:
    found: dict[int, _Wanted] = {}
    for name in artifact:
        info = artifact[name]
        entry = found.setdefault(info.object, _Wanted(made[name], {}, {}))
        entry.roles[name] = info.role
        entry.attrs[name] = _split(info.attrs)
    return found.values()


def _wanted_on_host(held: Mapping[str, Any]) -> Iterable[_Wanted]:
    found: dict[str, _Wanted] = {}
    for name, info in held.items():
        if info["object"] not in found:
            found[info["object"]] = _Wanted(host_tensor(info), {}, {})
        entry = found[info["object"]]
        entry.roles[name] = info["role"]
        entry.attrs[name] = _split(info["attrs"])
    return found.values()


def host_tensor(entry: Mapping[str, Any]) -> torch.Tensor:
    """A tensor in host memory as an entry of ``coldsnap.host`` has it, with its bytes."""
    dtype = getattr(torch, entry["dtype"].removeprefix("torch."))
    tensor = torch.empty_strided(entry["shape"], entry["strides"], dtype=dtype, device="cpu")
    fill(tensor, entry)
    return tensor


def fill(tensor: torch.Tensor, entry: Mapping[str, Any]) -> None:
    """Copy the bytes of an entry of ``coldsnap.host`` into a tensor of its dtype and shape."""
    data = bytearray(base64.b64decode(entry["data"]))
    if data:
        with torch.no_grad():
            tensor.copy_(torch.frombuffer(data, dtype=torch.uint8).view(tensor.dtype).reshape(tensor.shape))


def _split(attrs: Any) -> dict[str, str]:
    return dict(attr.split("=", 1) for attr in attrs)


class _Placing:
    """Puts tensors to their places in one model."""

    def __init__(self, walked: Walked) -> None:
        self._modules = walked.modules
        self._slots: dict[str, Slot] = {**walked.slots, **walked.empty}
        self._taken: set[int] = set()  # tensors of the model that have become one of the artifact

    def place_all(self, wanted: list[_Wanted]) -> dict[str, torch.Tensor]:
        """The tensors, under each name that there is a place for.

        A view keeps its base from being exchanged, and lets go of it when it has been exchanged itself. What still can't
        be exchanged then is replaced where modules hold it, and stays on the meta device where others do.
        """
        found: dict[str, torch.Tensor] = {}
        while wanted:
            kept = [entry for entry in wanted if not self._place(entry, found)]
            if len(kept) == len(wanted):
                self._place(kept.pop(0), found, exchange=False)
            wanted = kept
        return found

    def _place(self, wanted: _Wanted, found: dict[str, torch.Tensor], *, exchange: bool = True) -> bool:
        """Put one tensor to its places; False, and nothing done, if the model's own can't be exchanged yet."""
        existing = self._existing(wanted)
        name = next(iter(wanted.roles))
        tensor = _typed(name, wanted.plain, wanted.attrs[name], existing)
        if existing is not None and exchange:
            if not _exchanged(existing, tensor):
                return False
            tensor = existing
            self._taken.add(id(existing))
        for name, role in wanted.roles.items():
            slot = self._slots.get(name)
            if slot is not None and slot.tensor is tensor and slot.role == role:
                found[name] = tensor
            elif role != "inner":
                self._register(name, role, tensor, wanted.attrs[name])
                found[name] = tensor
        return True

    def _existing(self, wanted: _Wanted) -> torch.Tensor | None:
        """The model's tensor that becomes this one: one that is nothing else yet, registered ones first."""
        slots = [self._slots[name] for name in wanted.roles if name in self._slots]
        slots.sort(key=lambda slot: slot.role == "inner")
        return next((slot.tensor for slot in slots if id(slot.tensor) not in self._taken), None)

    def _register(self, name: str, role: str, tensor: torch.Tensor, attrs: Mapping[str, str]) -> None:
        owner, leaf = _owner(name)
        module = self._modules.get(owner)
        if module is None:
            raise errors.LayoutError(
                f"give {name} its memory: it is a {role} of a module, and the model has no module {owner!r}",
                stage="open",
                remedy="restore into a model that was built with the captured configuration",
            )
        registries = {"parameter": module._parameters, "buffer": module._buffers, "attribute": vars(module)}
        for other, registry in registries.items():
            if other != role:
                registry.pop(leaf, None)
        registries[role][leaf] = tensor
        module._non_persistent_buffers_set.discard(leaf)
        if attrs.get("persistent") == "false":
            module._non_persistent_buffers_set.add(leaf)


def _owner(name: str) -> tuple[str, str]:
    """The path of the module that a registered tensor or an attribute stands in, and its name there."""
    if name.endswith("']"):  # an attribute beside a registered tensor of its name
        owner, _, leaf = name.rpartition("__dict__['")
        return owner.removesuffix("."), leaf.removesuffix("']")
    owner, _, leaf = name.rpartition(".")
    return owner, leaf


def _typed(name: str, plain: torch.Tensor, attrs: Mapping[str, str], existing: torch.Tensor | None) -> torch.Tensor:
    """The memory as a tensor of the captured class, with what hangs at the model's own one."""
    kind, learns = attrs["class"], attrs["requires_grad"] == "true"
    if kind == _PLAIN:
        tensor = plain.requires_grad_(learns)
    elif kind == _PARAMETER:
        tensor = torch.nn.Parameter(plain, requires_grad=learns)
    elif existing is not None and kinds.name_of(type(existing)) == kind:
        tensor = torch.Tensor._make_subclass(type(existing), plain, learns)
    else:
        has = "nothing there" if existing is None else f"a {kinds.name_of(type(existing))}"
        raise errors.LayoutError(
            f"give {name} its memory: it was a {kind} when captured, and the model has {has}", stage="open"
        )
    if existing is not None:
        vars(tensor).update(vars(existing))
    return tensor


def _exchanged(existing: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Let the model's own object become the new tensor, so that all that refers to it stays right; False if it can't."""
    try:
        torch.utils.swap_tensors(existing, tensor)
    except RuntimeError:  # something native, a view or a weak reference, holds on to what it is now
        return False
    return True
