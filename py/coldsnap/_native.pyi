"""Bindings of cc/capture and cc/hydrate. Import `coldsnap` instead."""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


class Artifact:
    """One shard of an artifact, open; all but the extents' data is checked."""

    @property
    def path(self) -> str: ...

    @property
    def shard(self) -> str: ...

    @property
    def shards(self) -> list[str]: ...

    @property
    def artifact_root(self) -> str: ...

    @property
    def identity(self) -> str:
        """Canonical JSON."""

    @property
    def scalars(self) -> str:
        """Canonical JSON."""

    @property
    def capture(self) -> str:
        """Canonical JSON."""

    @property
    def data_start(self) -> int:
        """Bytes."""

    @property
    def blob_bytes(self) -> int: ...

    @property
    def payload_bytes(self) -> int: ...

    @property
    def blob_fd(self) -> int:
        """The blob, open for buffered reads; the artifact's, not to be closed."""

    @property
    def shard_dir_fd(self) -> int:
        """The shard's folder; the artifact's, not to be closed."""

    @property
    def manifest_sha256(self) -> str: ...

    @property
    def shard_root(self) -> str: ...

    @property
    def header_sha256(self) -> str:
        """Of the blob's bytes before data_start."""

    @property
    def leaves_sha256(self) -> str:
        """Of leaves.bin."""

    def tensors(self) -> list:
        """
        Rows (name, dtype, shape, strides, extent or None, offset, object, role, attrs), by name.
        """

    def extents(self) -> list:
        """Rows (file_offset, nbytes, crc32 hex, sha256t hex), in data order."""

    def leaves(self, extent: int) -> bytes:
        """The extent's leaf digests, 32 bytes for each 64 KiB."""

    def residency(self) -> float:
        """The fraction of the blob that is in the page cache."""

    def resident_bytes(self, offset: int, nbytes: int) -> int:
        """
        How many bytes of a range of the blob are in the page cache; it begins at a page.
        """

    def blob_memory_backed(self) -> bool:
        """
        Whether the blob's file system lives in memory (tmpfs, ramfs, hugetlbfs).
        """

def open_artifact(path: str, shard: str | None = None) -> Artifact:
    """
    Opens one shard of the artifact at `path`; `coldsnap.open` is the checked form.
    """

def artifact_shards(path: str) -> list[str]:
    """Names of the shards that the artifact at `path` lists."""

def crc32_combine(first: int, second: int, second_nbytes: int) -> int:
    """
    The CRC-32 of A followed by B, from those of A and B and the length of B in bytes.
    """

def write_artifact(path: str, tensors: Sequence[tuple[str, str, Sequence[int], Sequence[int], int, int, int, int, str, Sequence[str]]], identity_json: str, scalars_json: str, capture_json: str) -> dict:
    """
    Writes an artifact of one shard from tensors in host memory, which must stay alive and unchanged meanwhile.

    Rows of `tensors`: (name, dtype, shape, strides in elements, address, storage address, storage bytes, object, role, attrs).
    """

def capture_shard(folder: str, shard: str, tensors: Sequence[tuple[str, str, Sequence[int], Sequence[int], int, int, int, int, str, Sequence[str]]], identity_json: str, scalars_json: str, device: str, *, backend: str, chunk_bytes: int, queue_depth: int, write_threads: int, pinned_max_bytes: int, preverified: bool, check_source: bool, streams: Sequence[int], progress: object | None, resume: bool = False, place: str = 'auto') -> dict:
    """
    Writes the shard's folder under `folder` from memory of the device and returns once it is on the drive.

    `record` in the answer goes to `publish_artifact`. `progress(done, total)` runs in the calling thread at most 20 times a second; True cancels, and so does what it raises. After a failure no folder stays.

    `resume` takes up what a killed capture of the same tensors, identity and chunk_bytes left in the folder, and keeps the journal that this takes.
    """

class Incoming:
    """
    A folder in which an artifact is built, locked; from `create_incoming`.
    """

    @property
    def path(self) -> str: ...

    def close(self) -> None:
        """Removes the folder, unless it was published, and the lock."""

def create_incoming(parent: str, name: str, keep_shards: bool = False) -> Incoming:
    """
    Makes and locks `parent`/`name`; what an ended process left there is removed first, or with `keep_shards` what is no folder, for captures that resume.
    """

def remove_stale_incoming(parent: str) -> int:
    """
    Removes the folders under `parent` that ended processes left; says how many.
    """

def publish_artifact(incoming: Incoming, records: Sequence[str], identity_json: str, capture_json: str, destination: str) -> dict:
    """
    Writes artifact.json over the shards and moves the folder to `destination`, where nothing may be.

    Whatever it raises, nothing is at `destination` and the folder is gone.
    """

class Trace:
    """
    What each thread of the restores that got it did, and when: the first 1,000,000 spans.
    """

    def __init__(self) -> None: ...

    def to_json(self) -> str:
        """
        For Perfetto and chrome://tracing; times are those of `time.monotonic_ns()`, in microseconds.
        """

    @property
    def dropped(self) -> int:
        """Spans beyond the limit, which were not kept."""

class Hydrator:
    """
    Restores into one device, and what they use again: pinned ring, threads, streams. `coldsnap.hydrate` and `coldsnap.Hydrator` are the checked forms.

    `settings` has whole numbers: chunk_bytes, queue_depth, read_threads, direct_chunk_bytes, direct_queue_depth, direct_read_threads, hash_threads, pinned_max_bytes.
    """

    def __init__(self, device: str) -> None: ...

    def prepare(self, route: str, settings: dict) -> float:
        """
        Makes ring, threads and streams before the first restore; seconds that it took.
        """

    def hydrate(self, artifact: Artifact, ranges: Sequence[tuple[int, int, int]], route: str, verify: str, settings: dict, streams: Sequence[int], tick: object | None, confirm: object | None = None, trace: Trace | None = None, place: str = 'auto') -> dict:
        """
        Fills ranges (extent, address, nbytes) of the device from the artifact.

        `tick(done, total)` runs in the calling thread at most 20 times a second; True cancels, and so does what it raises. `confirm()` has the last word before publishing: what it raises poisons. `trace` gets what the threads do, also when this raises.
        """

class Layout:
    """
    Where the bytes of a capture are and where they go; from `plan_layout`.
    """

    @property
    def header(self) -> bytes:
        """The blob's first data_start bytes."""

    @property
    def blob_bytes(self) -> int: ...

    @property
    def uncovered_bytes(self) -> int:
        """Of the extents, outside every tensor."""

    def extents(self) -> list:
        """Rows (file offset, address, nbytes), in data order."""

    def manifest(self, shard: str, crc32: Sequence[int], sha256t: Sequence[str], leaves_sha256: str, identity_json: str, scalars_json: str) -> tuple:
        """
        (bytes of manifest.json, the shard's entry in artifact.json), from the digests of each extent.
        """

def plan_layout(tensors: Sequence[tuple[str, str, Sequence[int], Sequence[int], int, int, int, int, str, Sequence[str]]]) -> Layout:
    """
    Rows of `tensors` as of `write_artifact`; nothing is read from their memory.
    """

def canonical_object(text: str) -> str:
    """
    The canonical text of a JSON object that becomes a field of a document.
    """

def residency(path: str) -> tuple[int, int]:
    """(bytes of the file in the page cache, bytes of the file)."""

def crc32(buffer: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> int:
    """
    zlib's crc32 over a contiguous uint8 array; one thread, without the GIL.
    """

def sha256t(buffer: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> str:
    """
    Root of the tree sha256-tree-65536 over a contiguous uint8 array; one thread, without the GIL.
    """

CUDA_RUNTIME_VERSION: str = '13.0'

def cuda_devices() -> tuple[int, str]:
    """(how many CUDA devices this process sees, why none). Makes no context."""

def device_name(device: str) -> str:
    """The card's name."""

def device_free_bytes(device: str) -> int: ...

def why_no_device_digests(device: str) -> str:
    """Empty where the device computes digests: tried, with a context on it."""

def gds_driver() -> tuple[str, str]:
    """
    (path to be expected of cuFile, evidence). Opens its driver, which stays open while the process lives.
    """

def measure_copy(device: str, to_device: bool, nbytes: int, chunk_bytes: int) -> float:
    """
    Seconds for copying `nbytes` between pinned memory and the device, on one stream, in chunks.
    """

def limits() -> dict:
    """
    What affinity mask, control groups and local ranks leave to this process; `notes` has what could not be read.
    """

def throttled_seconds() -> float | None:
    """
    Processor seconds that quotas have held back in this process's control groups; None where nothing counts them.
    """
