// The C ABI of capture over the core: converts and keeps what the caller's pointers point at.
#pragma GCC visibility push(default)
#include "cc/abi/capture.h"
#pragma GCC visibility pop

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cc/abi/calls.h"
#include "cc/abi/sized.h"
#include "cc/base/hex.h"
#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/capture/capture.h"
#include "cc/capture/write_artifact.h"
#include "cc/device/gpu.h"
#include "cc/device/place.h"

namespace coldsnap::abi {
namespace {

// The arrays that a report points at.
class CaptureTold {
 public:
  coldsnap_capture_report Tell(WriteReport report) {
    report_ = std::move(report);
    root_ = ToHex(report_.artifact_root);
    const CaptureReport& shard = report_.shard;
    for (const Reason& reason : shard.reasons) {
      reason_codes_.push_back(reason.code.c_str());
      reason_details_.push_back(reason.detail.c_str());
    }
    return {.artifact_root = root_.c_str(),
            .route = Literal(RouteName(shard.route)),
            .reason_count = reason_codes_.size(),
            .reason_codes = reason_codes_.data(),
            .reason_details = reason_details_.data(),
            .payload_bytes = shard.payload_bytes,
            .blob_bytes = shard.blob_bytes,
            .extent_count = shard.extents,
            .uncovered_bytes = shard.uncovered_bytes,
            .chunk_bytes = shard.chunk_bytes,
            .queue_depth = static_cast<uint64_t>(shard.queue_depth),
            .write_threads = static_cast<uint64_t>(shard.write_threads),
            .pinned_bytes = shard.pinned_bytes,
            .residency_after = shard.residency_after.value_or(-1),
            .open_s = shard.stages_s.open,
            .ring_s = shard.stages_s.ring,
            .copy_s = shard.stages_s.copy,
            .digest_s = shard.stages_s.digest,
            .write_s = shard.stages_s.write,
            .source_s = shard.stages_s.source,
            .sync_s = shard.stages_s.sync,
            .reread_s = shard.stages_s.reread,
            .publish_s = shard.stages_s.publish,
            .wall_s = shard.wall_s,
            .place = Literal(PlaceName(shard.place))};
  }

 private:
  WriteReport report_;
  std::string root_;
  std::vector<const char*> reason_codes_;
  std::vector<const char*> reason_details_;
};

std::string ObjectOf(const char* json) { return json == nullptr ? "{}" : json; }

// Row-major strides of a shape.
std::vector<int64_t> ContiguousStrides(std::span<const uint64_t> shape) {
  std::vector<int64_t> strides(shape.size());
  uint64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = static_cast<int64_t>(step);
    step *= std::max<uint64_t>(shape[i], 1);  // too large a shape is refused for its bytes
  }
  return strides;
}

// `unnamed`: a number that no tensor of the caller's has as its object.
Result<TensorSpec> SpecOf(const coldsnap_capture_tensor& given, size_t index, uint64_t unnamed) {
  const auto missing = [&](const char* field) {
    return Status(Code::kRequestInvalid, StrCat("read coldsnap_capture_tensor ", index, ": its ", field, " is NULL"));
  };
  if (given.name == nullptr) return missing("name");
  if (given.dtype == nullptr) return missing("dtype");
  if (given.dimensions > 64) {
    return Status(Code::kRequestInvalid,
                  StrCat("tensor ", given.name, " has ", given.dimensions, " dimensions, format 1 has at most 64"));
  }
  if (given.dimensions != 0 && given.shape == nullptr) return missing("shape");
  if (given.attr_count != 0 && given.attrs == nullptr) return missing("attrs");
  TensorSpec spec{.name = given.name,
                  .dtype = given.dtype,
                  .shape = {given.shape, given.shape + given.dimensions},
                  .strides = {},
                  .address = given.address,
                  .storage_address = given.storage_address,
                  .storage_nbytes = given.storage_nbytes,
                  .object = given.object == 0 ? unnamed : given.object,
                  .role = given.role == nullptr ? "" : given.role,
                  .attrs = {}};
  if (given.strides == nullptr) {
    spec.strides = ContiguousStrides(spec.shape);
  } else {
    spec.strides.assign(given.strides, given.strides + given.dimensions);
  }
  for (uint64_t i = 0; i < given.attr_count; ++i) {
    if (given.attrs[i] == nullptr) return missing(StrCat("attr ", i).c_str());
    spec.attrs.emplace_back(given.attrs[i]);
  }
  return spec;
}

Result<std::vector<TensorSpec>> SpecsOf(const coldsnap_capture_tensor* tensors, size_t count) {
  ASSIGN_OR_RETURN(const std::vector<coldsnap_capture_tensor> given,
                   ReadArray(tensors, count, "coldsnap_capture_tensor"));
  uint64_t unnamed = 0;
  for (const coldsnap_capture_tensor& tensor : given) unnamed = std::max(unnamed, tensor.object);
  if (unnamed > UINT64_MAX - count) {
    return Status(Code::kRequestInvalid, StrCat("an object's number is ", unnamed, ", which is too large"));
  }
  std::vector<TensorSpec> specs;
  specs.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(TensorSpec spec, SpecOf(given[i], i, unnamed + 1 + i));
    specs.push_back(std::move(spec));
  }
  return specs;
}

Result<CaptureOptions> OptionsOf(const coldsnap_capture_run_options& given) {
  CaptureOptions options;
  ASSIGN_OR_RETURN(options.backend, WriteBackendNamed(given.backend == nullptr ? "auto" : given.backend));
  ASSIGN_OR_RETURN(options.place, PlaceNamed(given.place == nullptr ? "auto" : given.place));
  if (given.stream_count != 0 && given.streams == nullptr) {
    return Status(Code::kRequestInvalid, StrCat("streams is NULL, and stream_count is ", given.stream_count));
  }
  if (given.chunk_bytes != 0) options.chunk_bytes = given.chunk_bytes;
  options.queue_depth = Count(given.queue_depth, options.queue_depth);
  options.write_threads = Count(given.write_threads, options.write_threads);
  options.pinned_max_bytes = given.pinned_max_bytes;
  options.check_source = given.check_source != 0;
  options.preverified = given.preverified != 0;
  options.streams = {given.streams, given.stream_count};
  if (given.progress != nullptr) {
    options.tick = [progress = given.progress, user = given.user](uint64_t done, uint64_t total) {
      const coldsnap_capture_progress now{
          .struct_size = sizeof(now), .user = user, .done_bytes = done, .total_bytes = total};
      if (progress(&now) == 0) return Status::Ok();
      return Status(Code::kCancelled, StrCat("cancelled after ", done, " of ", total, " bytes"));
    };
  }
  return options;
}

}  // namespace
}  // namespace coldsnap::abi

// Not in the namespace: C has none.
struct coldsnap_capture {
  explicit coldsnap_capture(std::unique_ptr<coldsnap::Gpu> device) : gpu(std::move(device)) {}

  std::unique_ptr<coldsnap::Gpu> gpu;
  coldsnap::abi::CaptureTold told;
  std::atomic<bool> busy = false;
};

namespace coldsnap::abi {
namespace {

using CaptureTurn = Turn<coldsnap_capture>;

Status Open(const coldsnap_capture_open_options* given, coldsnap_capture** handle) {
  if (handle == nullptr) return Status(Code::kRequestInvalid, "the pointer to the handle is NULL");
  *handle = nullptr;
  ASSIGN_OR_RETURN(const coldsnap_capture_open_options options, ReadSized(given, "coldsnap_capture_open_options"));
  if (options.device == nullptr) {
    return Status(Code::kRequestInvalid, "device is NULL").WithRemedy("name it: host, cuda:0");
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Gpu> gpu, OpenGpu(options.device));
  *handle = std::make_unique<coldsnap_capture>(std::move(gpu)).release();
  return Status::Ok();
}

Status Run(coldsnap_capture* handle, const coldsnap_capture_tensor* tensors, size_t count,
           const coldsnap_capture_run_options* given, coldsnap_capture_report* into) {
  ASSIGN_OR_RETURN(const CaptureTurn turn, CaptureTurn::Take(handle));
  ASSIGN_OR_RETURN(const coldsnap_capture_run_options read, ReadSized(given, "coldsnap_capture_run_options"));
  if (read.artifact == nullptr) return Status(Code::kRequestInvalid, "the artifact's path is NULL");
  ASSIGN_OR_RETURN(const CaptureOptions options, OptionsOf(read));
  WriteRequest request{.path = read.artifact,
                       .tensors = {},
                       .identity_json = ObjectOf(read.identity_json),
                       .scalars_json = ObjectOf(read.scalars_json),
                       .capture_json = ObjectOf(read.account_json)};
  ASSIGN_OR_RETURN(request.tensors, SpecsOf(tensors, count));
  // A report that can't be filled is refused before the capture and not after it.
  if (into != nullptr) RETURN_IF_ERROR(StructSize(into, "coldsnap_capture_report").status());
  turn->told = {};
  ASSIGN_OR_RETURN(WriteReport report, CaptureArtifact(std::move(request), *turn->gpu, options));
  const coldsnap_capture_report told = turn->told.Tell(std::move(report));
  return into == nullptr ? Status::Ok() : WriteSized(told, "coldsnap_capture_report", into);
}

Status Close(coldsnap_capture* handle) {
  if (handle == nullptr) return Status::Ok();
  ASSIGN_OR_RETURN(CaptureTurn turn, CaptureTurn::Take(handle));
  delete std::move(turn).Keep();
  return Status::Ok();
}

}  // namespace
}  // namespace coldsnap::abi

using coldsnap::abi::Call;

uint32_t coldsnap_capture_abi_version(void) { return COLDSNAP_CAPTURE_ABI_VERSION; }

int32_t coldsnap_capture_open(const coldsnap_capture_open_options* options, coldsnap_capture** handle) {
  return Call([&] { return coldsnap::abi::Open(options, handle); });
}

int32_t coldsnap_capture_run(coldsnap_capture* handle, const coldsnap_capture_tensor* tensors, size_t tensor_count,
                             const coldsnap_capture_run_options* options, coldsnap_capture_report* report) {
  return Call([&] { return coldsnap::abi::Run(handle, tensors, tensor_count, options, report); });
}

int32_t coldsnap_capture_close(coldsnap_capture* handle) {
  return Call([&] { return coldsnap::abi::Close(handle); });
}

int32_t coldsnap_capture_last_error(coldsnap_capture_error* error) {
  return coldsnap::abi::TellLastError("coldsnap_capture_error", error);
}
