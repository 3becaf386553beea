#include "cc/capture/write_artifact.h"

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <utility>

#include "cc/artifact/artifact_json.h"
#include "cc/artifact/layout.h"
#include "cc/device/host_gpu.h"
#include "cc/publish/incoming.h"
#include "cc/publish/publish_artifact.h"
#include "cc/sys/clock.h"

namespace coldsnap {
namespace {

Result<WriteReport> Write(WriteRequest request, Gpu& gpu, const CaptureOptions& options) {
  if (::access(request.path.c_str(), F_OK) == 0)
    return Status(Code::kExists, "it is there already").WithRemedy("name a new path");
  const std::string shard_name = ShardName(0, 0, 0);
  RETURN_IF_ERROR(MakeArtifact(request.identity_json, request.capture_json, {{.name = shard_name}}).status());
  ASSIGN_OR_RETURN(Layout layout, PlanLayout(std::move(request.tensors)));
  const std::filesystem::path path(request.path);
  const std::string parent = path.has_parent_path() ? path.parent_path().string() : ".";
  Result<Incoming> incoming =
      Incoming::Create(parent, StrCat(".", path.filename().string(), ".incoming"), options.resume);
  if (!incoming.ok()) {
    if (incoming.status().code() != Code::kRequestInvalid) return std::move(incoming).status();
    return std::move(incoming).status().WithRemedy("name a path whose parent folder exists");
  }
  ASSIGN_OR_RETURN(CapturedShard shard, CaptureShard(incoming->path(), shard_name, std::move(layout),
                                                     request.identity_json, request.scalars_json, gpu, options));
  WriteReport report{.shard = std::move(shard.report)};
  const Stopwatch publish;
  ASSIGN_OR_RETURN(report.artifact_root, PublishArtifact(*std::move(incoming), {std::move(shard.record)},
                                                         request.identity_json, request.capture_json, request.path));
  report.shard.stages_s.publish += publish.Seconds();
  report.shard.wall_s += publish.Seconds();
  return report;
}

}  // namespace

Result<WriteReport> CaptureArtifact(WriteRequest request, Gpu& gpu, const CaptureOptions& options) {
  while (request.path.size() > 1 && request.path.ends_with('/')) request.path.pop_back();
  const std::string doing = StrCat("write artifact ", request.path, ": ");
  Result<WriteReport> report = Write(std::move(request), gpu, options);
  if (report.ok()) return report;
  return std::move(report).status().Prefixed(doing).WithStage("capture");
}

Result<WriteReport> WriteHostArtifact(WriteRequest request) {
  const std::unique_ptr<Gpu> gpu = OpenHostGpu();
  return CaptureArtifact(std::move(request), *gpu, {.backend = WriteBackend::kBuffered, .write_threads = 2});
}

}  // namespace coldsnap
