"""Device memory through libcuda.so.1, so that calibration needs neither torch nor a second CUDA runtime.

The context is the device's primary one, which is also what the runtime inside `_native` uses. Source of names and
numbers: the CUDA driver API reference (memory management, primary context management).
"""

from __future__ import annotations

import contextlib
import ctypes
from types import TracebackType

from coldsnap import errors


class DeviceMemory:
    """One allocation on a CUDA device; free it with `close` or leave it to a ``with`` block."""

    def __init__(self, device: str, nbytes: int) -> None:
        """Allocate.

        Args:
            device: ``cuda:N``.
            nbytes: How many bytes.
        Raises:
            CudaError, OutOfMemoryError: The driver is missing or refuses; the message has its words.
        """
        self.nbytes = nbytes
        self.address = 0
        self._ordinal = int(device.partition(":")[2])
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise errors.CudaError(f"open the CUDA driver for {device}: {error}") from error
        context, address = ctypes.c_void_p(), ctypes.c_uint64()
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(self._ordinal))
        self._call("cuCtxSetCurrent", context)
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        self.address = address.value

    def clear(self) -> None:
        """Fill the allocation with zeros and wait for it."""
        self._call("cuMemsetD8_v2", ctypes.c_uint64(self.address), ctypes.c_ubyte(0), ctypes.c_size_t(self.nbytes))
        self._call("cuCtxSynchronize")

    def read(self, offset: int, address: int, nbytes: int) -> None:
        """Copy `nbytes` from byte `offset` of the allocation to the host address `address`, and wait for it."""
        source = ctypes.c_uint64(self.address + offset)
        self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(address), source, ctypes.c_size_t(nbytes))

    def close(self) -> None:
        """Free the allocation and give the context back; a second call does nothing."""
        if self.address:
            address, self.address = self.address, 0
            self._call("cuMemFree_v2", ctypes.c_uint64(address))
            self._call("cuDevicePrimaryCtxRelease_v2", ctypes.c_int(self._ordinal))

    def __enter__(self) -> DeviceMemory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What failed before is the news; a device that is gone also refuses to free.
        with contextlib.suppress(errors.CudaError) if error is not None else contextlib.nullcontext():
            self.close()

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code == 0:
            return
        text = ctypes.c_char_p()
        known = self._cuda.cuGetErrorName(ctypes.c_int(code), ctypes.byref(text)) == 0 and text.value is not None
        words = text.value.decode() if known and text.value else f"CUDA error {code}"
        kind = errors.OutOfMemoryError if code == 2 else errors.CudaError  # 2 is CUDA_ERROR_OUT_OF_MEMORY
        raise kind(
            f"{name} for {self.nbytes} bytes on cuda:{self._ordinal}: {words}", stage="copy", native=("cuda", code)
        )
