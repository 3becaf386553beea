#include "tests/faults/cases.h"

#include <cuda_runtime_api.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "cc/base/check.h"

namespace coldsnap {
namespace {

using enum FaultPoint;

struct Row {
  FaultPoint point;
  Ending ending;
  FaultKind kind;
  std::vector<int> errors;
  uint64_t times = 1;
};
constexpr uint64_t kEveryCall = 0;

// An error that ends the flow in one place may be taken for an answer in another (a direct read that is refused, under
// auto; a residency that nobody needs): those rows say kEither, and the case's other checks decide.
const std::vector<Row>& Rows() {
  static const auto* const rows = new std::vector<Row>{
      {kOpenat, Ending::kFailure, FaultKind::kError, {EIO, EMFILE, ENOMEM, EACCES}},
      {kOpenat, Ending::kSuccess, FaultKind::kError, {EINTR}, 3},
      {kOpen, Ending::kFailure, FaultKind::kError, {EIO, EMFILE, ENOMEM, ENOSPC}},
      {kOpen, Ending::kSuccess, FaultKind::kError, {EINTR}, 3},
      {kFstat, Ending::kFailure, FaultKind::kError, {EIO, ENOMEM}},
      {kFstatfs, Ending::kSuccess, FaultKind::kError, {EIO, ENOSYS, EINTR}},
      {kPread, Ending::kFailure, FaultKind::kError, {EIO, EAGAIN, ENOMEM, EINVAL}},
      {kPread, Ending::kFailure, FaultKind::kNothing, {0}},
      {kPread, Ending::kSuccess, FaultKind::kError, {EINTR}, 5},
      {kPread, Ending::kSuccess, FaultKind::kOneByte, {0}, 3},
      {kPread, Ending::kSuccess, FaultKind::kHalf, {0}, 3},
      {kPread, Ending::kSuccess, FaultKind::kSlow, {0}},
      {kPwrite, Ending::kFailure, FaultKind::kError, {EIO, ENOSPC, EDQUOT, EFBIG}},
      {kPwrite, Ending::kFailure, FaultKind::kNothing, {0}},
      {kPwrite, Ending::kSuccess, FaultKind::kError, {EINTR}, 5},
      {kPwrite, Ending::kSuccess, FaultKind::kOneByte, {0}, 3},
      {kPwrite, Ending::kSuccess, FaultKind::kHalf, {0}, 3},
      {kPwrite, Ending::kSuccess, FaultKind::kSlow, {0}},
      {kStatx, Ending::kSuccess, FaultKind::kError, {ENOSYS, EINVAL, EINTR, EPERM}},
      {kCachestat, Ending::kSuccess, FaultKind::kError, {ENOSYS, EOPNOTSUPP, EPERM, EINTR}},
      {kMmap, Ending::kEither, FaultKind::kError, {ENOMEM, EAGAIN, ENODEV}},
      {kMmap, Ending::kFailure, FaultKind::kError, {ENOMEM}, kEveryCall},
      {kMunmap, Ending::kSuccess, FaultKind::kErrorAfter, {ENOMEM, EINVAL}},
      {kMadvise, Ending::kSuccess, FaultKind::kError, {EINVAL, ENOMEM, EAGAIN}},
      {kMincore, Ending::kEither, FaultKind::kError, {EAGAIN, ENOMEM}},
      {kAccess, Ending::kSuccess, FaultKind::kError, {EACCES, EIO, ENOMEM}},
      {kFlock, Ending::kFailure, FaultKind::kError, {ENOLCK, ENOSYS, EIO}},
      {kFlock, Ending::kSuccess, FaultKind::kError, {EINTR}, 3},
      {kMkdir, Ending::kFailure, FaultKind::kError, {EIO, ENOSPC, EROFS}},
      {kFchmod, Ending::kFailure, FaultKind::kError, {EPERM, EIO}},
      {kFallocate, Ending::kFailure, FaultKind::kError, {ENOSPC, EDQUOT, EIO, EFBIG}},
      {kFallocate, Ending::kSuccess, FaultKind::kError, {EOPNOTSUPP, EINVAL, ENOSYS}},
      {kFallocate, Ending::kSuccess, FaultKind::kError, {EINTR}, 3},
      {kFstatvfs, Ending::kSuccess, FaultKind::kError, {EIO, ENOSYS}},
      {kFtruncate, Ending::kFailure, FaultKind::kError, {EIO, ENOSPC, EFBIG}},
      {kFtruncate, Ending::kSuccess, FaultKind::kError, {EINTR}, 3},
      {kSyncFileRange, Ending::kFailure, FaultKind::kError, {EIO, ENOSPC, EDQUOT}},
      {kSyncFileRange, Ending::kSuccess, FaultKind::kError, {ENOSYS, EPERM}},
      {kSyncFileRange, Ending::kSuccess, FaultKind::kError, {EINTR}, 3},
      {kFsync, Ending::kFailure, FaultKind::kError, {EIO, ENOSPC, EDQUOT}},
      {kFsync, Ending::kSuccess, FaultKind::kError, {EINTR}, 3},
      {kFsync, Ending::kSuccess, FaultKind::kSlow, {0}},
      {kFdatasync, Ending::kFailure, FaultKind::kError, {EIO, ENOSPC, EDQUOT}},
      {kFdatasync, Ending::kSuccess, FaultKind::kError, {EINTR}, 3},
      {kUnlinkat, Ending::kEither, FaultKind::kError, {EIO, EPERM}},
      {kRenameat2, Ending::kFailure, FaultKind::kError, {EEXIST, EIO, ENOSPC, EINVAL}},
      {kClose, Ending::kSuccess, FaultKind::kErrorAfter, {EINTR}},
      {kClose, Ending::kEither, FaultKind::kErrorAfter, {EIO, ENOSPC}},
      {kStartThread, Ending::kFailure, FaultKind::kError, {EAGAIN}},
      {kCudaGetDeviceCount, Ending::kFailure, FaultKind::kError, {cudaErrorNoDevice, cudaErrorInsufficientDriver}},
      {kCudaGetDeviceProperties, Ending::kFailure, FaultKind::kError, {cudaErrorUnknown}},
      {kCudaMemGetInfo, Ending::kFailure, FaultKind::kError, {cudaErrorUnknown}},
      {kCudaGetDevice, Ending::kEither, FaultKind::kError, {cudaErrorUnknown}},
      {kCudaSetDevice, Ending::kEither, FaultKind::kError, {cudaErrorDevicesUnavailable, cudaErrorMemoryAllocation}},
      {kCudaPointerGetAttributes, Ending::kFailure, FaultKind::kError, {cudaErrorUnknown}},
      {kCudaGetDriverEntryPoint, Ending::kFailure, FaultKind::kError, {cudaErrorNotSupported}},
      {kCuMemGetAddressRange, Ending::kFailure, FaultKind::kError, {cudaErrorInvalidValue, cudaErrorCudartUnloading}},
      {kCudaMalloc, Ending::kFailure, FaultKind::kError, {cudaErrorMemoryAllocation}},
      {kCudaFree, Ending::kSuccess, FaultKind::kErrorAfter, {cudaErrorIllegalAddress}},
      {kCudaHostRegister, Ending::kEither, FaultKind::kError, {cudaErrorMemoryAllocation, cudaErrorNotPermitted}},
      {kCudaHostRegister, Ending::kFailure, FaultKind::kError, {cudaErrorMemoryAllocation}, kEveryCall},
      {kCudaHostUnregister, Ending::kSuccess, FaultKind::kErrorAfter, {cudaErrorIllegalAddress}},
      {kCudaStreamCreate, Ending::kFailure, FaultKind::kError, {cudaErrorMemoryAllocation, cudaErrorIllegalAddress}},
      {kCudaStreamDestroy, Ending::kSuccess, FaultKind::kErrorAfter, {cudaErrorIllegalAddress}},
      {kCudaStreamSynchronize, Ending::kFailure, FaultKind::kErrorAfter, {cudaErrorIllegalAddress}},
      {kCudaStreamSynchronize, Ending::kSuccess, FaultKind::kSlow, {0}},
      {kCudaEventCreate, Ending::kFailure, FaultKind::kError, {cudaErrorMemoryAllocation, cudaErrorIllegalAddress}},
      {kCudaEventDestroy, Ending::kSuccess, FaultKind::kErrorAfter, {cudaErrorIllegalAddress}},
      {kCudaEventRecord, Ending::kFailure, FaultKind::kError, {cudaErrorIllegalAddress, cudaErrorUnknown}},
      {kCudaEventQuery, Ending::kFailure, FaultKind::kError, {cudaErrorIllegalAddress, cudaErrorLaunchFailure}},
      {kCudaEventQuery, Ending::kFailure, FaultKind::kErrorAfter, {cudaErrorIllegalAddress}},
      {kCudaEventQuery, Ending::kSuccess, FaultKind::kError, {cudaErrorNotReady}, 2},
      {kCudaEventQuery, Ending::kSuccess, FaultKind::kSlow, {0}},
      {kCudaEventElapsedTime, Ending::kSuccess, FaultKind::kError, {cudaErrorUnknown}},
      {kCudaMemcpyAsync, Ending::kFailure, FaultKind::kError, {cudaErrorIllegalAddress, cudaErrorMemoryAllocation}},
      {kCudaMemcpyAsync, Ending::kSuccess, FaultKind::kSlow, {0}},
      {kCudaMemcpyBatchAsync, Ending::kFailure, FaultKind::kError, {cudaErrorIllegalAddress, cudaErrorNotSupported}},
      {kCudaMemcpyBatchAsync, Ending::kFailure, FaultKind::kErrorAfter, {cudaErrorIllegalAddress}},
      {kScatterWorks, Ending::kSuccess, FaultKind::kError, {cudaErrorInvalidDeviceFunction}},
      {kScatter, Ending::kFailure, FaultKind::kError, {cudaErrorLaunchOutOfResources}},
      {kScatter, Ending::kFailure, FaultKind::kErrorAfter, {cudaErrorIllegalAddress}},
      // Digests are computed on the host then, unless the device was named.
      {kHashLeavesWorks, Ending::kEither, FaultKind::kError, {cudaErrorInvalidDeviceFunction}},
      {kHashLeaves, Ending::kFailure, FaultKind::kError, {cudaErrorLaunchOutOfResources}},
      {kHashLeaves, Ending::kFailure, FaultKind::kErrorAfter, {cudaErrorIllegalAddress}},
      {kCudaMemsetAsync, Ending::kFailure, FaultKind::kError, {cudaErrorIllegalAddress}},
  };
  return *rows;
}

std::string KindText(FaultKind kind, int error, bool cuda) {
  switch (kind) {
    case FaultKind::kOneByte:
      return "one byte";
    case FaultKind::kHalf:
      return "half";
    case FaultKind::kNothing:
      return "nothing";
    case FaultKind::kSlow:
      return "slow";
    default:
      break;
  }
  const std::string name = cuda ? cudaGetErrorName(static_cast<cudaError_t>(error)) : ::strerrorname_np(error);
  return name + (kind == FaultKind::kErrorAfter ? " after the call" : "");
}

// Where a flow lives with what ends another one.
Ending EndingIn(const Flow& flow, FaultPoint point, Ending ending) {
  if (flow.BaseCode() != Code::kOk) return Ending::kFailure;
  const bool reads = point == kOpenat || point == kPread || point == kFstat || point == kMmap;
  // auto reads through the page cache when the direct reader can't be made, and a capture that can't
  // read what it wrote, or what a killed one left, has another way, too.
  const bool falls_back = flow.name().find("auto cold") != std::string::npos ||
                          flow.name().find("preverified") != std::string::npos ||
                          flow.name().find("taken up") != std::string::npos;
  if (falls_back && reads && ending == Ending::kFailure) return Ending::kEither;
  return ending;
}

Code CodeOfCuda(int error) { return error == cudaErrorMemoryAllocation ? Code::kOutOfMemory : Code::kCuda; }

bool CodeFits(const Status& status, FaultPoint point, const Fault& fault, const Flow& flow) {
  const Code code = status.code();
  if (flow.BaseCode() != Code::kOk && code == flow.BaseCode()) return true;  // the flow's own fault came first
  if (IsCudaPoint(point)) {
    if (point == kCudaMemsetAsync) return code == Code::kDeviceLost;
    if (point == kHashLeavesWorks) return code == Code::kRouteUnavailable;
    if (point == kCudaGetDeviceCount) return code == Code::kRouteUnavailable;
    return code == CodeOfCuda(fault.error) || (flow.BaseCode() != Code::kOk && code == Code::kDeviceLost);
  }
  // A direct reader that can't be opened or can't read.
  if (code == Code::kRouteUnavailable) {
    return flow.kind() == FlowKind::kRestore && (point == kOpenat || point == kPread || point == kFstat);
  }
  if (point == kStartThread) return code == Code::kOutOfMemory;
  if (fault.kind == FaultKind::kNothing) return code == (point == kPread ? Code::kDataLoss : Code::kIo);
  return code == Status::FromErrno(fault.error, "").code();
}

std::string CauseOf(FaultPoint point, const Fault& fault) {
  if (IsCudaPoint(point)) {
    if (point == kHashLeavesWorks) return "no kernel that runs on it";
    if (fault.error == cudaErrorInsufficientDriver) return "no NVIDIA driver";
    return cudaGetErrorName(static_cast<cudaError_t>(fault.error));
  }
  if (fault.kind == FaultKind::kNothing && point == kPread) return "the file ends";
  return std::generic_category().message(fault.kind == FaultKind::kNothing ? EIO : fault.error);
}

}  // namespace

std::vector<FaultCase> FaultCasesOf(FaultPoint point, const Flow& flow) {
  std::vector<FaultCase> cases;
  for (const Row& row : Rows()) {
    if (row.point != point) continue;
    for (const int error : row.errors) {
      std::string text = KindText(row.kind, error, IsCudaPoint(point));
      if (row.times != 1) text += row.times == kEveryCall ? " from there on" : StrCat(" ", row.times, " times");
      cases.push_back({.fault = {.kind = row.kind, .error = error, .times = row.times, .slow_ms = 5},
                       .ending = EndingIn(flow, point, row.ending),
                       .text = std::move(text)});
    }
  }
  COLDSNAP_CHECK(!cases.empty());  // a point without a row would never be tested
  return cases;
}

std::string WrongFailure(const Status& status, FaultPoint point, const Fault& fault, const Flow& flow) {
  const bool base_only = flow.BaseCode() != Code::kOk && status.code() == flow.BaseCode();
  if (!CodeFits(status, point, fault, flow)) return StrCat("its code is ", CodeName(status.code()));
  if (status.stage().empty() && flow.kind() != FlowKind::kDevice) return "it has no stage";
  if (!status.message().starts_with(flow.Doing())) return "it does not begin with what was being done";
  if (base_only) return "";
  if (status.message().find(CauseOf(point, fault)) == std::string::npos) return "it does not name the cause";
  if (status.domain() == Domain::kErrno && status.native() != fault.error && fault.kind != FaultKind::kNothing) {
    return StrCat("its errno is ", status.native());
  }
  if (status.domain() == Domain::kCuda && status.native() != fault.error)
    return StrCat("its CUDA error is ", status.native());
  return "";
}

}  // namespace coldsnap
