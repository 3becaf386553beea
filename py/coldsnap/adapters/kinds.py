"""What the walker has to know of Python's kinds of objects: their value as JSON, what they refer to, and who may not be
entered.

An object is looked into only where all that it refers to can be found: its `__dict__`, its slots, the elements of a
container, what a function closes over. One whose state is native code's can hold memory that nobody sees, so `parts`
says None unless the type is known to hold none or to belong to the process.
"""

from __future__ import annotations

import collections
import enum
import functools
import gc
import hashlib
import itertools
import json
import operator
import pathlib
import struct
import types
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

_LONG = 256  # characters, bytes or elements that a manifest keeps as they are; of longer ones it keeps the digest
_NONE = object()
# nn.Module's own, walked as what they are; and its hooks, which are nothing as long as they are empty.
_REGISTRIES = frozenset(("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"))
_MODULE_OWN = frozenset(vars(torch.nn.Module())) - _REGISTRIES - {"training"}

# Types of these modules belong to this process and hold no weights: locks, threads, streams, groups, compiled code.
_LOCAL_MODULES = (
    *("_contextvars", "_queue", "_random", "_socket", "_thread", "_weakref", "asyncio", "concurrent.futures"),
    *(
        "contextvars",
        "datetime",
        "decimal",
        "importlib",
        "inspect",
        "logging",
        "multiprocessing",
        "numpy.dtypes",
        "numpy.random",
    ),
    *(
        "queue",
        "random",
        "re",
        "socket",
        "subprocess",
        "threading",
        "torch._C._distributed_c10d",
        "torch._dynamo",
        "torch._inductor",
    ),
    *("torch._library", "torch._ops", "torch.cuda.streams", "torch.distributed", "torch.fx", "triton", "typing"),
    *("torch.library", "uuid", "zmq", "zoneinfo"),
)
_LOCAL_TYPES = frozenset(
    f"torch._C.{name}"
    for name in (
        "Generator",
        "Stream",
        "Event",
        "_CudaStreamBase",
        "_CudaEventBase",
        "FunctionSchema",
        "DispatchKeySet",
    )
)
# What torch.compile keeps in the function that it gives, of the one it was given. All else there is of the compiler.
_COMPILED_OF = "_torchdynamo_orig_callable"
_iterators = [kind for kind in vars(itertools).values() if isinstance(kind, type)]
# State that is Python references only, in no order that a path could name.
_REFERENCES = (
    *(types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, type(functools.lru_cache(lambda: 0))),
    *(type(iter(())), type(iter([])), type(iter({})), zip, map, filter, enumerate, reversed),
    *(operator.attrgetter, operator.itemgetter, operator.methodcaller, *_iterators),
)
_DESCRIPTORS = (types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType)
_BUILT_IN = (types.BuiltinFunctionType, types.MethodWrapperType)
_FUNCTIONS = (types.FunctionType, *_BUILT_IN, *_DESCRIPTORS)


class Part(NamedTuple):
    """Something that an object refers to.

    Attributes:
        suffix: To append to the object's path.
        value: What it refers to.
        ordered: Whether the suffix means the same object in another process.
    """

    suffix: str
    value: Any
    ordered: bool = True


def name_of(kind: type) -> str:
    """Module and qualified name of a type."""
    return f"{kind.__module__}.{kind.__qualname__}"


@functools.lru_cache(4096)  # a model has thousands of objects, of a few types
def is_process_local(kind: type) -> bool:
    """Whether a type is known to belong to this process and to hold no weights."""
    module = kind.__module__ if isinstance(kind.__module__, str) else ""
    return name_of(kind) in _LOCAL_TYPES or any(f"{module}.".startswith(f"{known}.") for known in _LOCAL_MODULES)


def scalar(value: Any) -> Any:
    """The value as JSON, which tells types apart (`coldsnap.values` keeps a float's bits); `is_scalar` says if it is one.

    None, bool, int, float and str stand for themselves. Others are an object with their kind as its only key. A device
    loses its index, which differs from rank to rank. Arrays, long texts and long lists are their digests.
    """
    return _scalar(value, type(value))


def is_scalar(value: Any) -> bool:
    """Whether `scalar` has a value for it, and it holds no tensor."""
    return _scalar(value, type(value)) is not _NONE


def _scalar(value: Any, kind: type) -> Any:
    if value is None or kind in (bool, int, float):
        return value
    if kind is str:
        return _text(value)
    if issubclass(kind, enum.Enum):
        return {"enum": f"{name_of(kind)}.{value.name if value.name is not None else value.value}"}
    if kind in (torch.dtype, torch.layout, torch.memory_format):
        return {"torch": str(value)}
    if kind is torch.device:
        return {"device": value.type}
    if kind in (bytes, bytearray):
        return {"bytes": value.hex() if len(value) <= _LONG else _digest(value)}
    if kind is complex:
        return {"complex": struct.pack(">dd", value.real, value.imag).hex()}
    if kind in (list, tuple, torch.Size):
        return _sequence(value)
    if kind is dict and len(value) > _LONG:  # a vocabulary
        names = sorted(value, key=repr)
        held = _sequence(names), _sequence([value[name] for name in names])
        return _NONE if _NONE in held else {"dict": list(held)}
    return _name_or_array(value, kind)


def _name_or_array(value: Any, kind: type) -> Any:
    if issubclass(kind, type):
        return {"type": name_of(value)}
    if issubclass(kind, types.ModuleType):
        return {"module": value.__name__}
    if issubclass(kind, pathlib.PurePath):  # its slots keep what was computed of it, a hash that no two processes share
        return {"path": _text(str(value))}
    if kind in (range, slice, type(...), type(NotImplemented)):
        return {"value": repr(value)}
    if issubclass(kind, int | float | str) and not issubclass(kind, torch.Tensor):
        base = next(base for base in (int, float, str) if issubclass(kind, base))
        return {name_of(kind): _scalar(base(value), base)} if not _has_parts(value) else _NONE
    if kind.__module__ == "numpy" and hasattr(kind, "tobytes"):  # arrays and numpy's scalars
        if value.dtype.hasobject:
            return _NONE
        return {"numpy": f"{value.dtype.str}{list(value.shape)}:{_digest(value.tobytes())}"}
    return _NONE


def _has_parts(value: Any) -> bool:
    return bool(getattr(value, "__dict__", None))


def _text(value: str) -> Any:
    known = value.encode("utf-8", "backslashreplace").decode()
    return known if len(known) <= _LONG else {"text": _digest(known.encode())}


def _sequence(value: Sequence[Any]) -> Any:
    """A list of plain scalars; one that holds anything else is a container."""
    found = []
    for item in value:
        kind = type(item)
        if not (item is None or kind in (bool, int, float, str, torch.dtype, torch.device)):
            return _NONE
        found.append(_scalar(item, kind))
    return found if len(found) <= _LONG else {"list": _digest(json.dumps(found).encode())}


def _digest(data: bytes | bytearray) -> str:
    return f"{len(data)}:{hashlib.sha256(data).hexdigest()}"


def module_attributes(module: torch.nn.Module) -> Iterator[Part]:
    """What stands in a module's ``__dict__`` beside its parameters, buffers and submodules, by name."""
    own = vars(module)
    registered: set[str] = set().union(*(own.get(registry, ()) for registry in ("_parameters", "_buffers", "_modules")))
    for name in sorted(own):
        if name in _REGISTRIES or (name in _MODULE_OWN and not own[name]):
            continue
        yield Part(f".__dict__[{name!r}]" if name in registered else f".{name}", own[name])


def described(value: Any) -> str:
    """The type of an object; of a function, which one it is."""
    kind = type(value)
    if kind not in _FUNCTIONS:
        return name_of(kind)
    return f"{name_of(kind)} {getattr(value, '__module__', None)}.{value.__qualname__}"


def parts(value: Any) -> list[Part] | None:
    """What an object refers to, in an order that is the same in every process; None if not all of that can be seen."""
    kind = type(value)
    if issubclass(kind, _REFERENCES):
        return [Part(f".ref[{index}]", item, False) for index, item in enumerate(gc.get_referents(value))]
    if issubclass(kind, weakref.ReferenceType | weakref.ProxyType | weakref.CallableProxyType):
        return []  # not its owner
    if kind is types.FunctionType and _COMPILED_OF in vars(value):
        return [Part(f".{_COMPILED_OF}", vars(value)[_COMPILED_OF])]
    called = _callable_parts(value, kind)
    if called is not None:
        return [*called, *attributes(value)]
    held, bases = _container_parts(value, kind)
    if any(_native_state(base) for base in kind.__mro__ if base not in bases):
        return None
    return [*held, *attributes(value)]


def attributes(value: Any) -> list[Part]:
    """What stands in an object's ``__dict__`` and in its slots, by name."""
    try:
        found = dict(object.__getattribute__(value, "__dict__"))  # a class may make of an attribute what it likes
    except AttributeError:
        found = {}
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            name = f"_{base.__name__.lstrip('_')}{slot}" if slot.startswith("__") and not slot.endswith("__") else slot
            member = vars(base).get(name)
            if isinstance(member, types.MemberDescriptorType):
                try:
                    found[name] = member.__get__(value, base)
                except AttributeError:
                    continue  # never assigned
    return [Part(f".{name}", found[name]) for name in sorted(found)]


def _callable_parts(value: Any, kind: type) -> list[Part] | None:
    if issubclass(kind, functools.partial):
        keywords = [Part(f".keywords[{name!r}]", value.keywords[name]) for name in sorted(value.keywords)]
        return [Part(".func", value.func), *_indexed(".args", value.args), *keywords]
    if kind is types.FunctionType:
        return _function_parts(value)
    if kind is types.MethodType:
        return [Part(".__func__", value.__func__), Part(".__self__", value.__self__)]
    if kind in _BUILT_IN:
        owner = value.__self__
        return [] if owner is None or isinstance(owner, types.ModuleType | type) else [Part(".__self__", owner)]
    if kind in _DESCRIPTORS:
        return []
    if kind in (staticmethod, classmethod):
        return [Part(".__func__", value.__func__)]
    if kind is property:
        return [Part(f".{name}", getattr(value, name)) for name in ("fget", "fset", "fdel")]
    return None


def _function_parts(function: types.FunctionType) -> list[Part]:
    """What a function keeps alive; its module's globals are not its own."""
    found = []
    for index, cell in enumerate(function.__closure__ or ()):
        try:
            found.append(Part(f".closure[{index}]", cell.cell_contents))
        except ValueError:
            continue  # a variable that was not assigned yet, or no more
    found += _indexed(".defaults", function.__defaults__ or ())
    keywords = function.__kwdefaults__ or {}
    return found + [Part(f".kwdefaults[{name!r}]", keywords[name]) for name in sorted(keywords)]


def _container_parts(value: Any, kind: type) -> tuple[list[Part], tuple[type, ...]]:
    """The elements of a container, and the types whose state these are."""
    if issubclass(kind, types.MappingProxyType):
        return _mapping_parts(dict(value)), (types.MappingProxyType,)
    if issubclass(kind, dict):
        held = _mapping_parts(dict(dict.items(value)))
        factory = getattr(value, "default_factory", None)
        bases = (dict, collections.OrderedDict, collections.defaultdict)
        return held + ([Part(".default_factory", factory)] if factory is not None else []), bases
    for base in (list, tuple, collections.deque):
        if issubclass(kind, base):
            return _indexed("", base.__iter__(value)), (base, torch.Size)
    if issubclass(kind, set | frozenset):
        return _set_parts(value), (set, frozenset)
    return [], (int, float, str, bytes)  # of a subclass with attributes


def _mapping_parts(value: dict[Any, Any]) -> list[Part]:
    named = [Part(f"[{_key(key)}]", item) for key, item in value.items() if _key(key) is not None]
    others = [(key, item) for key, item in value.items() if _key(key) is None]
    keys = [Part(f".key[{index}]", key) for index, (key, _) in enumerate(others)]
    values = [Part(f".value[{index}]", item) for index, (_, item) in enumerate(others)]
    return sorted(named, key=lambda part: part.suffix) + keys + values


def _key(key: Any) -> str | None:
    """How a path writes a key; None if it has no text that is the same in another process."""
    if isinstance(key, enum.Enum):
        return f"{type(key).__qualname__}.{key.name}"
    if type(key) in (str, int, float, bool, type(None), torch.dtype, torch.device):
        return repr(key)
    if type(key) is tuple and all(_key(item) is not None for item in key):
        return repr(key)
    return name_of(key) if isinstance(key, type) else None


def _set_parts(value: Any) -> list[Part]:
    if all(_key(item) is not None for item in value):
        return _indexed("", sorted(_key(item) or "" for item in value))
    return [Part(f"[{index}]", item, False) for index, item in enumerate(value)]


def _indexed(prefix: str, values: Any) -> list[Part]:
    return [Part(f"{prefix}[{index}]", value) for index, value in enumerate(values)]


def _native_state(kind: type) -> bool:
    """Whether instances have state, beyond their dict and slots, that this type added: then native code made it."""
    base = kind.__base__
    if base is None:
        return False
    own = vars(kind)
    slots = own.get("__slots__", ())
    words = len((slots,) if isinstance(slots, str) else tuple(slots)) + ("__dict__" in own) + ("__weakref__" in own)
    return kind.__basicsize__ - base.__basicsize__ > 8 * words or kind.__itemsize__ > base.__itemsize__
