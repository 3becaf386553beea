"""coldsnap: finished weights, captured once and restored straight into the tensors that need them.

    coldsnap.capture(tensors, "/models/artifact")
    with coldsnap.open("/models/artifact") as artifact:
        receipt = coldsnap.hydrate(artifact, tensors, backend="auto")

Importing this imports neither torch nor numpy nor any CUDA library: those come with the tensors.
"""

from coldsnap.artifact import Artifact, ExtentInfo, TensorInfo, open
from coldsnap.capture import capture
from coldsnap.errors import (
    Cancelled,
    CudaError,
    DataLossError,
    DeviceLostError,
    Error,
    ExistsError,
    FormatInvalidError,
    InternalError,
    IoError,
    LayoutError,
    NoSpaceError,
    NotAdmittedError,
    OutOfMemoryError,
    PolicyRefusedError,
    QuarantinedError,
    RequestInvalidError,
    RouteUnavailableError,
    TimedOutError,
)
from coldsnap.hydrate import Hydrator, hydrate
from coldsnap.keep_cached import KeepCached
from coldsnap.keep_cached import keep as keep_cached
from coldsnap.ranks import RankGroup, capture_rank
from coldsnap.receipts import Receipt
from coldsnap.store import Store
from coldsnap.stored import StoredArtifact
from coldsnap.verify import verify
from coldsnap.version import VERSION

__version__ = VERSION

__all__ = [
    "Artifact",
    "Cancelled",
    "CudaError",
    "DataLossError",
    "DeviceLostError",
    "Error",
    "ExistsError",
    "ExtentInfo",
    "FormatInvalidError",
    "Hydrator",
    "InternalError",
    "IoError",
    "KeepCached",
    "LayoutError",
    "NoSpaceError",
    "NotAdmittedError",
    "OutOfMemoryError",
    "PolicyRefusedError",
    "QuarantinedError",
    "RankGroup",
    "Receipt",
    "RequestInvalidError",
    "RouteUnavailableError",
    "Store",
    "StoredArtifact",
    "TensorInfo",
    "TimedOutError",
    "__version__",
    "capture",
    "capture_rank",
    "hydrate",
    "keep_cached",
    "open",
    "verify",
]
