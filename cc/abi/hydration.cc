// The C ABI over the core: converts and keeps what the caller's pointers point at. Decisions live in the core.
#pragma GCC visibility push(default)
#include "cc/abi/hydration.h"
#pragma GCC visibility pop

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/abi/calls.h"
#include "cc/abi/sized.h"
#include "cc/base/hex.h"
#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/device/gpu.h"
#include "cc/device/place.h"
#include "cc/gds/gds.h"
#include "cc/hydrate/hydrate.h"
#include "cc/hydrate/names.h"
#include "cc/hydrate/open_artifact.h"

namespace coldsnap::abi {
namespace {

// The arrays that a report points at.
class Told {
 public:
  coldsnap_hydration_report Tell(HydrateReport report) {
    report_ = std::move(report);
    for (const Route route : kRoutes) {
      const HydrateReport::Part& part = report_.By(route);
      if (part.extents == 0) continue;
      routes_.push_back(Literal(RouteName(route)));
      route_bytes_.push_back(part.nbytes);
      route_extents_.push_back(part.extents);
    }
    for (const Reason& reason : report_.reasons) {
      reason_codes_.push_back(reason.code.c_str());
      reason_details_.push_back(reason.detail.c_str());
    }
    const HydrateReport::Stages& stages = report_.stages_s;
    return {.route_count = routes_.size(),
            .routes = routes_.data(),
            .route_bytes = route_bytes_.data(),
            .route_extents = route_extents_.data(),
            .reason_count = reason_codes_.size(),
            .reason_codes = reason_codes_.data(),
            .reason_details = reason_details_.data(),
            .payload_bytes = report_.payload_bytes,
            .read_bytes = report_.read_bytes,
            .chunk_bytes = report_.chunk_bytes,
            .queue_depth = static_cast<uint64_t>(report_.queue_depth),
            .pinned_bytes = report_.pinned_bytes,
            .residency_before = report_.residency_before.value_or(-1),
            .residency_after = report_.residency_after.value_or(-1),
            .open_s = stages.open,
            .ring_s = stages.ring,
            .read_s = stages.read,
            .digest_s = stages.digest,
            .copy_s = stages.copy,
            .drain_s = stages.drain,
            .publish_s = stages.publish,
            .wall_s = report_.wall_s,
            .gds_path = report_.gds ? Literal(GdsPathName(report_.gds->path)) : nullptr,
            .gds_evidence = report_.gds ? report_.gds->text.c_str() : nullptr,
            .place = Literal(PlaceName(report_.place))};
  }

 private:
  HydrateReport report_;
  std::vector<const char*> routes_;
  std::vector<uint64_t> route_bytes_;
  std::vector<uint64_t> route_extents_;
  std::vector<const char*> reason_codes_;
  std::vector<const char*> reason_details_;
};

// The artifact in use, and what describe() points at.
struct InUse {
  explicit InUse(OpenArtifact opened) : artifact(std::move(opened)), root(ToHex(artifact.record().artifact_root)) {
    for (const Extent& extent : artifact.manifest().extents) extent_nbytes.push_back(extent.nbytes);
  }
  OpenArtifact artifact;
  std::string root;
  std::vector<uint64_t> extent_nbytes;
};

Result<std::unique_ptr<InUse>> Use(const char* path, const char* shard) {
  ASSIGN_OR_RETURN(OpenArtifact artifact, OpenArtifact::Open(path, TextOf(shard)));
  return std::make_unique<InUse>(std::move(artifact));
}

bool GoesOn(coldsnap_hydration_callback callback, void* user, uint64_t done, uint64_t total) {
  const coldsnap_hydration_progress now{
      .struct_size = sizeof(now), .user = user, .done_bytes = done, .total_bytes = total};
  return callback(&now) == 0;
}

Result<HydrateOptions> OptionsOf(const coldsnap_hydration_run_options& given) {
  HydrateOptions options;
  ASSIGN_OR_RETURN(options.backend, BackendNamed(given.backend == nullptr ? "auto" : given.backend));
  ASSIGN_OR_RETURN(options.verify, VerifyNamed(given.verify == nullptr ? "crc32+sha256" : given.verify));
  ASSIGN_OR_RETURN(options.place, PlaceNamed(given.place == nullptr ? "auto" : given.place));
  if (given.stream_count != 0 && given.streams == nullptr) {
    return Status(Code::kRequestInvalid, StrCat("streams is NULL, and stream_count is ", given.stream_count));
  }
  if (given.chunk_bytes != 0) options.chunk_bytes = given.chunk_bytes;
  options.queue_depth = Count(given.queue_depth, options.queue_depth);
  options.read_threads = Count(given.read_threads, options.read_threads);
  options.direct_chunk_bytes = given.direct_chunk_bytes;
  options.direct_queue_depth = Count(given.direct_queue_depth, options.direct_queue_depth);
  options.direct_read_threads = Count(given.direct_read_threads, options.direct_read_threads);
  options.hash_threads = Count(given.hash_threads, options.hash_threads);
  options.pinned_max_bytes = given.pinned_max_bytes;
  options.streams = {given.streams, given.stream_count};
  if (given.progress != nullptr) {
    options.tick = [progress = given.progress, user = given.user](uint64_t done, uint64_t total) {
      if (GoesOn(progress, user, done, total)) return Status::Ok();
      return Status(Code::kCancelled, StrCat("cancelled after ", done, " of ", total, " bytes"));
    };
  }
  return options;
}

Result<coldsnap_hydration_run_options> ReadOptions(const coldsnap_hydration_run_options* given) {
  if (given == nullptr) return coldsnap_hydration_run_options{};
  return ReadSized(given, "coldsnap_hydration_run_options");
}

Result<std::vector<ExtentTarget>> TargetsOf(const coldsnap_hydration_range* ranges, size_t count, size_t extents) {
  std::vector<ExtentTarget> targets;
  if (count == 0) return targets;
  if (count > extents) {
    return Status(Code::kRequestInvalid,
                  StrCat(count, " ranges were given, and the artifact has ", extents, " extents"));
  }
  ASSIGN_OR_RETURN(const std::vector<coldsnap_hydration_range> given,
                   ReadArray(ranges, count, "coldsnap_hydration_range"));
  targets.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    if (given[i].extent > UINT32_MAX) {
      return Status(Code::kRequestInvalid,
                    StrCat("read range ", i, " of ", count, ": its extent is ", given[i].extent));
    }
    targets.push_back({static_cast<uint32_t>(given[i].extent), {given[i].address, given[i].nbytes}});
  }
  return targets;
}

}  // namespace
}  // namespace coldsnap::abi

// Not in the namespace: C has none.
struct coldsnap_hydration {
  explicit coldsnap_hydration(std::unique_ptr<coldsnap::Gpu> device) : gpu(std::move(device)), hydrator(*gpu) {}

  std::unique_ptr<coldsnap::Gpu> gpu;
  coldsnap::Hydrator hydrator;
  std::unique_ptr<coldsnap::abi::InUse> in_use;  // none yet: null
  coldsnap::abi::Told told;
  std::atomic<bool> busy = false;
};

namespace coldsnap::abi {
namespace {

using HydrationTurn = Turn<coldsnap_hydration>;

Status Open(const coldsnap_hydration_open_options* given, coldsnap_hydration** handle) {
  if (handle == nullptr) return Status(Code::kRequestInvalid, "the pointer to the handle is NULL");
  *handle = nullptr;
  ASSIGN_OR_RETURN(const coldsnap_hydration_open_options options, ReadSized(given, "coldsnap_hydration_open_options"));
  if (options.device == nullptr) {
    return Status(Code::kRequestInvalid, "device is NULL").WithRemedy("name it: host, cuda:0");
  }
  std::unique_ptr<InUse> in_use;
  if (options.artifact != nullptr) {
    ASSIGN_OR_RETURN(in_use, Use(options.artifact, options.shard));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Gpu> gpu, OpenGpu(options.device));
  auto made = std::make_unique<coldsnap_hydration>(std::move(gpu));
  made->in_use = std::move(in_use);
  *handle = made.release();
  return Status::Ok();
}

Result<InUse*> ArtifactOf(const HydrationTurn& turn) {
  if (turn->in_use != nullptr) return turn->in_use.get();
  return Status(Code::kRequestInvalid, "this handle has no artifact")
      .WithRemedy("call coldsnap_hydration_use_artifact first");
}

Status UseArtifact(coldsnap_hydration* handle, const char* path, const char* shard) {
  ASSIGN_OR_RETURN(const HydrationTurn turn, HydrationTurn::Take(handle));
  if (path == nullptr) return Status(Code::kRequestInvalid, "the artifact's path is NULL");
  ASSIGN_OR_RETURN(turn->in_use, Use(path, shard));
  return Status::Ok();
}

Status Describe(coldsnap_hydration* handle, coldsnap_hydration_artifact* into) {
  ASSIGN_OR_RETURN(const HydrationTurn turn, HydrationTurn::Take(handle));
  ASSIGN_OR_RETURN(const InUse* in_use, ArtifactOf(turn));
  const coldsnap_hydration_artifact told{.artifact_root = in_use->root.c_str(),
                                         .shard = in_use->artifact.shard().name.c_str(),
                                         .payload_bytes = in_use->artifact.payload_bytes(),
                                         .extent_count = in_use->extent_nbytes.size(),
                                         .extent_nbytes = in_use->extent_nbytes.data(),
                                         .blob_fd = in_use->artifact.blob_fd()};
  return WriteSized(told, "coldsnap_hydration_artifact", into);
}

Status Prepare(coldsnap_hydration* handle, const coldsnap_hydration_run_options* given, double* seconds) {
  ASSIGN_OR_RETURN(const HydrationTurn turn, HydrationTurn::Take(handle));
  ASSIGN_OR_RETURN(const coldsnap_hydration_run_options read, ReadOptions(given));
  ASSIGN_OR_RETURN(const HydrateOptions options, OptionsOf(read));
  ASSIGN_OR_RETURN(const double took, turn->hydrator.Prepare(options));
  if (seconds != nullptr) *seconds = took;
  return Status::Ok();
}

Status Run(coldsnap_hydration* handle, const coldsnap_hydration_range* ranges, size_t range_count,
           const coldsnap_hydration_run_options* given, coldsnap_hydration_report* into) {
  ASSIGN_OR_RETURN(const HydrationTurn turn, HydrationTurn::Take(handle));
  ASSIGN_OR_RETURN(const InUse* in_use, ArtifactOf(turn));
  ASSIGN_OR_RETURN(const coldsnap_hydration_run_options read, ReadOptions(given));
  ASSIGN_OR_RETURN(HydrateOptions options, OptionsOf(read));
  ASSIGN_OR_RETURN(const std::vector<ExtentTarget> targets,
                   TargetsOf(ranges, range_count, in_use->extent_nbytes.size()));
  if (read.confirm != nullptr) {
    uint64_t total = 0;
    for (const ExtentTarget& target : targets) total += target.range.nbytes;
    options.confirm = [&read, total] {
      if (GoesOn(read.confirm, read.user, total, total)) return Status::Ok();
      return Status(Code::kPolicyRefused, "the caller did not confirm the restore");
    };
  }
  // A report that can't be filled is refused before the restore and not after it.
  if (into != nullptr) RETURN_IF_ERROR(StructSize(into, "coldsnap_hydration_report").status());
  turn->told = {};
  ASSIGN_OR_RETURN(HydrateReport report, turn->hydrator.Hydrate(in_use->artifact, targets, options));
  const coldsnap_hydration_report told = turn->told.Tell(std::move(report));
  return into == nullptr ? Status::Ok() : WriteSized(told, "coldsnap_hydration_report", into);
}

Status Close(coldsnap_hydration* handle) {
  if (handle == nullptr) return Status::Ok();
  ASSIGN_OR_RETURN(HydrationTurn turn, HydrationTurn::Take(handle));
  delete std::move(turn).Keep();
  return Status::Ok();
}

}  // namespace
}  // namespace coldsnap::abi

using coldsnap::abi::Call;

uint32_t coldsnap_hydration_abi_version(void) { return COLDSNAP_HYDRATION_ABI_VERSION; }

int32_t coldsnap_hydration_open(const coldsnap_hydration_open_options* options, coldsnap_hydration** handle) {
  return Call([&] { return coldsnap::abi::Open(options, handle); });
}

int32_t coldsnap_hydration_use_artifact(coldsnap_hydration* handle, const char* artifact, const char* shard) {
  return Call([&] { return coldsnap::abi::UseArtifact(handle, artifact, shard); });
}

int32_t coldsnap_hydration_describe(coldsnap_hydration* handle, coldsnap_hydration_artifact* artifact) {
  return Call([&] { return coldsnap::abi::Describe(handle, artifact); });
}

int32_t coldsnap_hydration_prepare(coldsnap_hydration* handle, const coldsnap_hydration_run_options* options,
                                   double* seconds) {
  return Call([&] { return coldsnap::abi::Prepare(handle, options, seconds); });
}

int32_t coldsnap_hydration_run(coldsnap_hydration* handle, const coldsnap_hydration_range* ranges, size_t range_count,
                               const coldsnap_hydration_run_options* options, coldsnap_hydration_report* report) {
  return Call([&] { return coldsnap::abi::Run(handle, ranges, range_count, options, report); });
}

int32_t coldsnap_hydration_close(coldsnap_hydration* handle) {
  return Call([&] { return coldsnap::abi::Close(handle); });
}

int32_t coldsnap_hydration_last_error(coldsnap_hydration_error* error) {
  return coldsnap::abi::TellLastError("coldsnap_hydration_error", error);
}
