"""What coldsnap has to know of a tensor: its type, its layout, and the memory that it and its storage occupy.

Serves both directions: destinations of a restore and sources of a capture. torch is never imported here: who passes a
torch tensor has imported it.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from coldsnap import errors

_NUMPY_DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "uint16": "U16",
    "int32": "I32",
    "uint32": "U32",
    "int64": "I64",
    "uint64": "U64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "complex128": "C128",
    # numpy has none of these itself; the ml_dtypes package adds them under these names
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}
_TORCH_DTYPES = {
    **{f"torch.{name}": dtype for name, dtype in _NUMPY_DTYPES.items()},
    "torch.float4_e2m1fn_x2": "F4",
}
# What a numpy array may have where the artifact has a type that numpy lacks.
NUMPY_STAND_INS = {
    "BF16": "U16",
    "F8_E4M3": "U8",
    "F8_E5M2": "U8",
    "F8_E8M0": "U8",
    "F8_E4M3FNUZ": "U8",
    "F8_E5M2FNUZ": "U8",
    "F4": "U8",
}


class Typed(NamedTuple):
    """A numpy array of unsigned integers that are elements of a type which numpy lacks; a source of captures.

    Attributes:
        array: One unsigned integer of the element's width for each element.
        dtype: As safetensors writes it; one of `NUMPY_STAND_INS`.
    """

    array: Any
    dtype: str


class TensorView(NamedTuple):
    """The memory behind one tensor. Holds no reference: whoever uses the addresses keeps the tensor alive.

    Attributes:
        name: The tensor's name in the artifact.
        dtype: As safetensors writes it.
        shape: Elements per dimension; F4 counts packed pairs.
        strides: Elements from one index to the next, per dimension; numpy's may be negative.
        address: Where the first element is.
        nbytes: Bytes of its elements.
        storage_address: Where the memory begins that the tensor is a view of.
        storage_nbytes: Bytes of that memory.
        device: ``host`` or ``cuda:N``.
        object_id: ``id()`` of the tensor.
        writable: Whether its owner lets it be written.
        framework: ``numpy`` or ``torch``.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    nbytes: int
    storage_address: int
    storage_nbytes: int
    device: str
    object_id: int
    writable: bool
    framework: str


def view_of(name: str, tensor: Any) -> TensorView:
    """Find out where a tensor's bytes are.

    Args:
        name: What messages call it.
        tensor: A numpy array, a `Typed` one, or a torch tensor in CPU or CUDA memory.
    Raises:
        RequestInvalidError: It is neither, or has no plain memory of its own (meta, sparse, quantized, conjugate,
            foreign byte order, object or structured dtype); the message says which.
    """
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(tensor, numpy.ndarray):
        return _numpy_view(name, tensor, numpy.ndarray)
    if isinstance(tensor, Typed):
        view = view_of(name, tensor.array)
        if view.dtype != NUMPY_STAND_INS.get(tensor.dtype):
            raise _refused(name, f"its array is of {view.dtype}, and is to be {tensor.dtype}", "see NUMPY_STAND_INS")
        return view._replace(dtype=tensor.dtype, object_id=id(tensor))
    if torch is not None and isinstance(tensor, torch.Tensor):
        return _torch_view(name, tensor, torch)
    kind = type(tensor)
    raise _refused(name, f"it is a {kind.__module__}.{kind.__qualname__}", "give a numpy array or a torch tensor")


def views_of(tensors: Any) -> dict[str, TensorView]:
    """`view_of` for a whole mapping of names to tensors, in its order.

    Raises:
        RequestInvalidError: ``tensors`` is no mapping, a name is no string, or a tensor is refused.
    """
    if not isinstance(tensors, Mapping):
        raise errors.RequestInvalidError(
            f"look at the tensors: they are a {type(tensors).__name__}", remedy="give a mapping of names to tensors"
        )
    views = {}
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise errors.RequestInvalidError(f"look at the tensors: the name {name!r} is a {type(name).__name__}")
        views[name] = view_of(name, tensor)
    return views


def native_specs(tensors: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Describe tensors in host memory for ``_native.write_artifact``: `specs_of` their views.

    Args:
        tensors: Names to numpy arrays or torch CPU tensors; they must outlive the call that reads them.
    Raises:
        RequestInvalidError: A tensor is refused, is not in host memory, or has a negative stride.
    """
    views = views_of(tensors)
    for view in views.values():
        if view.device != "host":
            raise _refused(view.name, f"it is in the memory of {view.device}", "copy it to the host first")
    return specs_of(views)


def specs_of(views: Mapping[str, TensorView]) -> list[tuple[Any, ...]]:
    """Describe tensors for the writers.

    Returns:
        ``(name, dtype, shape, strides, address, storage_address, storage_nbytes, object, role, attrs)`` per tensor,
        sorted by name (UTF-8 bytes). ``object`` numbers the distinct Python objects in that order, so that equal
        models give equal artifacts.
    Raises:
        RequestInvalidError: A name is no UTF-8, or a tensor is walked backwards.
    """
    numbers: dict[int, int] = {}
    specs: list[tuple[Any, ...]] = []
    for view in sorted(views.values(), key=_name_bytes):
        walked = [stride for length, stride in zip(view.shape, view.strides, strict=True) if length > 1]
        if min(walked, default=0) < 0 and view.nbytes > 0:
            raise _refused(view.name, f"its strides {view.strides} are negative", "make it contiguous")
        number = numbers.setdefault(view.object_id, len(numbers))
        where = view.address, view.storage_address, view.storage_nbytes
        specs.append((view.name, view.dtype, list(view.shape), list(view.strides), *where, number, "", []))
    return specs


def _name_bytes(view: TensorView) -> bytes:
    try:
        return view.name.encode()
    except UnicodeEncodeError as cause:
        raise _refused(view.name, f"its name is no UTF-8 ({cause.reason})", "give it another name") from cause


def _numpy_view(name: str, array: Any, ndarray: type) -> TensorView:
    dtype = _NUMPY_DTYPES.get(array.dtype.name)
    if dtype is None:
        raise _refused(name, f"its dtype {array.dtype} has no name in safetensors", _known(_NUMPY_DTYPES))
    if not array.dtype.isnative:
        remedy = "convert it: array.astype(array.dtype.newbyteorder('='))"
        raise _refused(name, f"its byte order ({array.dtype.str}) is not this machine's", remedy)
    item = array.dtype.itemsize
    if any(stride % item for stride in array.strides) and array.size > 0:
        raise _refused(name, f"its strides {array.strides} are not whole elements of {item} bytes", "copy the array")

    owner = array
    while isinstance(owner.base, ndarray):
        owner = owner.base
    storage_address, storage_nbytes = _span(owner)
    address, read_only = array.__array_interface__["data"]
    return TensorView(
        name=name,
        dtype=dtype,
        shape=array.shape,
        strides=tuple(stride // item for stride in array.strides),
        address=address,
        nbytes=array.nbytes,
        storage_address=storage_address,
        storage_nbytes=storage_nbytes,
        device="host",
        object_id=id(array),
        writable=not read_only,
        framework="numpy",
    )


def _span(array: Any) -> tuple[int, int]:
    """First address and bytes from an array's lowest element to its highest one."""
    begin = array.__array_interface__["data"][0]
    if array.size == 0:
        return begin, 0
    if array.flags.c_contiguous:
        return begin, array.nbytes
    reach = [stride * (length - 1) for stride, length in zip(array.strides, array.shape, strict=True)]
    low = sum(step for step in reach if step < 0)
    high = sum(step for step in reach if step > 0)
    return begin + low, high - low + array.dtype.itemsize


def _torch_view(name: str, tensor: Any, torch: Any) -> TensorView:
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise _refused(name, f"its layout is {tensor.layout}", "give a dense tensor")
    if tensor.is_quantized:
        raise _refused(name, f"it is quantized ({tensor.dtype})", "give its int_repr() and its scales by themselves")
    device = _torch_device(name, tensor.device)
    dtype = _torch_dtype(tensor.dtype)
    if dtype is None:
        raise _refused(name, f"its dtype {tensor.dtype} has no name in safetensors", _known(_TORCH_DTYPES))
    if tensor.is_conj() or tensor.is_neg():
        what = "conjugate" if tensor.is_conj() else "negative"
        raise _refused(name, f"it is a {what} view, so its memory holds other values", "call resolve_conj/resolve_neg")
    address, storage_address, storage_nbytes = _torch_memory(name, tensor)
    return TensorView(
        name=name,
        dtype=dtype,
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        address=address,
        nbytes=math.prod(tensor.shape) * tensor.element_size(),
        storage_address=storage_address,
        storage_nbytes=storage_nbytes,
        device=device,
        object_id=id(tensor),
        writable=True,
        framework="torch",
    )


def _torch_device(name: str, device: Any) -> str:
    if device.type == "cpu":
        return "host"
    if device.type == "cuda":
        return f"cuda:{device.index}"
    why = "it is on the meta device, so it has no memory" if device.type == "meta" else f"it is on device {device}"
    raise _refused(name, why, "give a tensor in CPU or CUDA memory")


def _torch_memory(name: str, tensor: Any) -> tuple[int, int, int]:
    remedy = "give a plain tensor (a subclass that wraps others has parts; name each part)"
    try:
        storage = tensor.untyped_storage()
        found = tensor.data_ptr(), storage.data_ptr(), storage.nbytes()
    except (RuntimeError, NotImplementedError) as cause:  # wrapper subclasses, fake tensors
        raise _refused(name, f"{type(tensor).__name__} gives no address ({cause})", remedy) from cause
    if found[0] == 0 and tensor.numel() > 0:
        raise _refused(name, f"{type(tensor).__name__} has no memory of its own", remedy)
    return found


@functools.cache
def _torch_dtype(dtype: Any) -> str | None:
    return _TORCH_DTYPES.get(str(dtype))


def _known(table: Iterable[str]) -> str:
    return f"the known ones: {', '.join(sorted(table))}"


def _refused(name: str, why: str, remedy: str) -> errors.RequestInvalidError:
    return errors.RequestInvalidError(f"use tensor {name!r}: {why}", remedy=remedy)
