"""Finding every tensor of a finished model, wherever it hides, and all else that has to be equal after a restore.

Registered parameters and buffers are the smaller part: tensors stand in a module's ``__dict__``, in objects that engines
hang there, in containers, in what functions close over. The walk goes by Python's references alone, runs no property and
no method of what it meets, and ends only where somebody says so: at types that belong to the process, at what the caller
stops at or skips. What it can't look into is refused by name, never passed over.

Modules are walked under each of their names. Any other object is entered where it is met first, and is noted as the same
at its other places. What only a module's globals or a class hold is not found; the account of memory
(`coldsnap.adapters.coverage`) is what tells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from coldsnap import errors
from coldsnap.adapters import kinds
from coldsnap.adapters.addresses import Addresses
from coldsnap.tensors import view_of

NOT_ALLOWED = "no part that is left out holds it"
_DEEPEST = 64  # nested objects: more is a structure that nobody can name, or one that makes itself up
_LONGEST = 4096  # bytes of a name in an artifact


@dataclass(frozen=True, slots=True)
class Slot:
    """One place that holds a tensor.

    Attributes:
        path: Dotted; ``[i]`` and ``['k']`` inside containers, ``.closure[i]`` inside functions.
        tensor: The tensor itself.
        role: ``parameter``, ``buffer``, ``attribute`` (in a module's ``__dict__``) or ``inner`` (inside other objects).
        attrs: Sorted ``key=value``: class, requires_grad, persistent (of buffers), device=host beside a model on a GPU.
    """

    path: str
    tensor: torch.Tensor
    role: str
    attrs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Walked:
    """What a walk found, by path; every path, so that one object can have several.

    Attributes:
        slots: The tensors, in walking order.
        scalars: Values of Python, as `coldsnap.adapters.kinds.scalar` writes them; types of objects under
            ``<path>.__class__``; ``{"same": path}`` where an object is met again.
        opaque: Type names of what was not entered since it belongs to this process, or the caller said so.
        missing: Tensors on the meta device: which module that the caller stopped at holds them, or `NOT_ALLOWED`.
        refused: Why a tensor can't be captured, or an object not be looked into.
        modules: The modules.
        empty: The tensors on the meta device themselves.
    """

    slots: dict[str, Slot] = field(default_factory=dict)
    scalars: dict[str, Any] = field(default_factory=dict)
    opaque: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    modules: dict[str, torch.nn.Module] = field(default_factory=dict)
    empty: dict[str, Slot] = field(default_factory=dict)


def never(*_: object) -> bool:
    """A ``stop`` or ``skip`` that nothing meets."""
    return False


def walk(
    model: torch.nn.Module,
    *,
    stop: Callable[[object], bool] = never,
    skip: Callable[[str, object], bool] = never,
) -> Walked:
    """Walk a model.

    Args:
        model: The finished model. Nothing of it is changed.
        stop: True for an object that belongs to the process or is the engine's configuration: it is not entered. A module
            for which it is true is one whose weights this process leaves out: it is entered, and tensors in it may be on
            the meta device.
        skip: True for what has no meaning in another process, by path: a tensor that holds a pointer, a workspace. It is
            neither captured nor compared.
    Returns:
        What was found. Two models that are equal give equal paths.
    """
    walking = _Walk(model, stop, skip)
    with torch._C.DisableTorchFunctionSubclass():  # a subclass may make of `.shape` what it likes
        walking.module(model, _Place("", "inner"))
    return _with_devices(walking.found)


class _Place(NamedTuple):
    """Where the walk is.

    Attributes:
        path: Of the object that is visited.
        role: That a tensor here has.
        left_out: The module around it whose weights this process leaves out, and its type.
        quiet: Whether scalars are of no interest.
        ordered: Whether the path means the same object in another process.
        depth: Objects around it that are no modules.
    """

    path: str
    role: str
    left_out: str = ""
    quiet: bool = False
    ordered: bool = True
    depth: int = 0

    def inside(self, part: kinds.Part, role: str = "inner") -> _Place:
        path = f"{self.path}{part.suffix}" if self.path else part.suffix.removeprefix(".")
        # One for each value of a model, so made at once, and not by `_replace`.
        return _Place(path, role, self.left_out, self.quiet, self.ordered and part.ordered, self.depth)


class _Walk:
    def __init__(
        self, model: torch.nn.Module, stop: Callable[[object], bool], skip: Callable[[str, object], bool]
    ) -> None:
        self.found = Walked()
        self._stop = stop
        self._skip = skip
        # Where each object was met first. Objects are kept with it: the number of one that is gone may be given again.
        self._met: dict[int, tuple[str, object]] = {
            id(module): (path, module) for path, module in model.named_modules()
        }
        self._around: set[int] = set()
        self._addresses = Addresses()

    def module(self, module: torch.nn.Module, place: _Place) -> None:
        """A module with all that is in it; under each of its names anew."""
        if id(module) in self._around:
            self.found.scalars[place.path] = {"same": self._met[id(module)][0]}
            return
        if isinstance(module, torch.jit.ScriptModule):
            self._refuse(place, module, "its parameters are native code's")
            return
        if self._stop(module):
            place = place._replace(left_out=f"{place.path} ({kinds.name_of(type(module))})")
        self._around.add(id(module))
        self.found.modules[place.path] = module
        self._note(place.inside(kinds.Part(".__class__", None)), kinds.name_of(type(module)))
        self._registered(module, place)
        for part in kinds.module_attributes(module):
            self.visit(part.value, place.inside(part, "attribute"))
        for name, child in module._modules.items():
            self._child(child, place.inside(kinds.Part(f".{name}", child)))
        self._around.discard(id(module))

    def visit(self, value: Any, place: _Place) -> None:
        """Anything at all."""
        kind = type(value)
        if not _is_name(place.path):
            self._refuse(place, value, f"its path is no name of 1 to {_LONGEST} bytes of UTF-8")
        elif self._skip(place.path, value):
            self._pass_by(value, place)
        elif issubclass(kind, torch.Tensor):
            self._tensor(value, place)
        elif kinds.is_scalar(value):
            self._scalar(value, place)
        elif id(value) in self._met:
            self._note(place, {"same": self._met[id(value)][0]})
        elif issubclass(kind, torch.nn.Module):
            self._met[id(value)] = place.path, value
            self.module(value, place)
        elif self._stop(value) or kinds.is_process_local(kind):
            self._pass_by(value, place)
        else:
            self._enter(value, place)

    def _registered(self, module: torch.nn.Module, place: _Place) -> None:
        for name, parameter in module._parameters.items():
            self._registered_one(parameter, place.inside(kinds.Part(f".{name}", parameter), "parameter"))
        for name, buffer in module._buffers.items():
            persistent = name not in module._non_persistent_buffers_set
            self._registered_one(buffer, place.inside(kinds.Part(f".{name}", buffer), "buffer"), persistent)

    def _registered_one(self, tensor: torch.Tensor | None, place: _Place, persistent: bool | None = None) -> None:
        if tensor is None:
            self._note(place, None)
        elif self._skip(place.path, tensor):
            self._pass_by(tensor, place)
        else:
            self._tensor(tensor, place, persistent)

    def _child(self, child: torch.nn.Module | None, place: _Place) -> None:
        if child is None:
            self._note(place, None)
        elif self._skip(place.path, child):
            self._pass_by(child, place)
        else:
            self.module(child, place)

    def _enter(self, value: Any, place: _Place) -> None:
        if place.depth >= _DEEPEST:
            self._refuse(place, value, f"it is inside {_DEEPEST} other objects")
            return
        self._met[id(value)] = place.path, value
        held = kinds.parts(value)
        if held is None:
            self._refuse(place, value, "its state is native code's, which may hold memory that can't be seen")
            return
        self._note(place.inside(kinds.Part(".__class__", None)), kinds.described(value))
        for part in held:
            self.visit(part.value, place.inside(part)._replace(depth=place.depth + 1))

    def _tensor(self, tensor: torch.Tensor, place: _Place, persistent: bool | None = None) -> None:
        slot = Slot(place.path, tensor, place.role, _attrs(tensor, persistent))
        why = self._unfit(tensor, place)
        if why:
            self._refuse(place, tensor, why)
        elif tensor.is_meta:
            self.found.missing[place.path] = place.left_out or NOT_ALLOWED
            self.found.empty[place.path] = slot
        else:
            self.found.slots[place.path] = slot
        if id(tensor) not in self._met:  # what hangs at a tensor is entered for its tensors: loaders, not state
            self._met[id(tensor)] = place.path, tensor
            for part in kinds.attributes(tensor):
                self.visit(part.value, place.inside(part)._replace(quiet=True, depth=place.depth + 1))

    def _unfit(self, tensor: torch.Tensor, place: _Place) -> str:
        """Why a tensor can't be captured; empty if it can."""
        if not place.ordered:
            return "the set or iterator that holds it has no order, so no path leads to it again"
        if place.path in self.found.slots or place.path in self.found.empty:
            return "another tensor has this path"
        if hasattr(type(tensor), "__tensor_flatten__"):
            return "it is a tensor subclass that wraps others"
        if torch.nn.parameter.is_lazy(tensor):
            return "it was never initialised"
        if tensor.is_meta:
            return ""
        try:
            view_of(place.path, tensor)
        except errors.RequestInvalidError as cause:
            return cause.message.partition(": ")[2]
        address = self._addresses.first_in(tensor)
        return "" if address is None else f"it holds {address:#x}, an address of this process"

    def _scalar(self, value: Any, place: _Place) -> None:
        numbers = value if type(value) in (list, tuple) else (value,)
        address = next((number for number in numbers if type(number) is int and self._addresses.holds(number)), None)
        if address is None:
            self._note(place, kinds.scalar(value))
        else:
            self._refuse(place, value, f"{address:#x} is an address of this process")

    def _pass_by(self, value: object, place: _Place) -> None:
        if not place.quiet and place.ordered:
            self.found.opaque[place.path] = kinds.name_of(type(value))

    def _note(self, place: _Place, value: Any) -> None:
        if not place.quiet and place.ordered:
            self.found.scalars[place.path] = value

    def _refuse(self, place: _Place, value: object, why: str) -> None:
        path = place.path.encode("utf-8", "backslashreplace").decode()[:_LONGEST]
        self.found.refused[path] = f"{kinds.name_of(type(value))}: {why}"


def _is_name(path: str) -> bool:
    """Whether an artifact can have ``path`` as a name. Asked for every object of a model, so without a loop of Python's."""
    try:
        return len(path.encode()) <= _LONGEST and "\0" not in path
    except UnicodeEncodeError:  # a surrogate
        return False


def _attrs(tensor: torch.Tensor, persistent: bool | None) -> tuple[str, ...]:
    found = [f"class={kinds.name_of(type(tensor))}", f"requires_grad={str(tensor.requires_grad).lower()}"]
    if persistent is not None:
        found.append(f"persistent={str(persistent).lower()}")
    return tuple(sorted(found))


def _with_devices(found: Walked) -> Walked:
    """Mark what is in host memory beside a model on a GPU."""
    if any(slot.tensor.device.type == "cuda" for slot in found.slots.values()):
        for path, slot in found.slots.items():
            if slot.tensor.device.type == "cpu":
                found.slots[path] = replace(slot, attrs=tuple(sorted((*slot.attrs, "device=host"))))
    return found
