#include "cc/hydrate/route.h"

#include "cc/sys/files.h"

namespace coldsnap {
namespace {

// Half: below it the drive decides the time, and reading past the page cache does not evict what others use.
constexpr double kResidentEnough = 0.5;

Result<BlobReader> OpenReader(const OpenArtifact& artifact, Route route) {
  return BlobReader::Open(route, artifact.shard_dir_fd(), kBlobFile, artifact.blob_fd());
}

std::string Percent(double fraction) {
  return StrCat(static_cast<int>(fraction * 100), " % of the blob is in the page cache");
}

Result<ChosenRoute> Decide(const OpenArtifact& artifact, Backend backend, const Result<double>& residency) {
  if (backend == Backend::kBuffered || backend == Backend::kDirect) {
    ASSIGN_OR_RETURN(BlobReader reader,
                     OpenReader(artifact, backend == Backend::kDirect ? Route::kDirect : Route::kBuffered));
    return ChosenRoute{.reader = std::move(reader), .reasons = {}};  // whoever named it knows why
  }
  const std::string evidence = residency.ok() ? Percent(*residency) : residency.status().message();
  const Reason cold{residency.ok() ? "cold" : "residency_unknown", evidence};
  if (residency.ok() && *residency >= kResidentEnough) {
    ASSIGN_OR_RETURN(BlobReader reader, OpenReader(artifact, Route::kBuffered));
    return ChosenRoute{.reader = std::move(reader), .reasons = {{"resident", evidence}}};
  }
  Result<BlobReader> direct = OpenReader(artifact, Route::kDirect);
  if (direct.ok()) return ChosenRoute{.reader = *std::move(direct), .reasons = {cold}};
  if (direct.status().code() != Code::kRouteUnavailable) return std::move(direct).status();
  ASSIGN_OR_RETURN(BlobReader reader, OpenReader(artifact, Route::kBuffered));
  return ChosenRoute{.reader = std::move(reader),
                     .reasons = {cold, {"direct_refused_probe", direct.status().message()}}};
}

}  // namespace

Result<double> Residency(const OpenArtifact& artifact) {
  const uint64_t blob_bytes = artifact.manifest().blob_bytes;
  ASSIGN_OR_RETURN(const uint64_t resident, ResidentBytes(artifact.blob_fd(), blob_bytes, kBlobFile));
  return static_cast<double>(resident) / static_cast<double>(blob_bytes);
}

Result<ChosenRoute> ChooseRoute(const OpenArtifact& artifact, Backend backend) {
  const Result<double> residency = Residency(artifact);
  ASSIGN_OR_RETURN(ChosenRoute chosen, Decide(artifact, backend, residency));
  if (residency.ok()) chosen.residency = *residency;
  // Linux 6.6 and later take O_DIRECT on tmpfs and serve it from memory: no drive was read, and the receipt must say
  // so.
  if (chosen.reader.route() == Route::kDirect && IsMemoryBacked(artifact.blob_fd())) {
    chosen.reasons.push_back(
        {"direct_served_from_memory",
         StrCat("the file system lives in memory; ", residency.ok() ? Percent(*residency) : "residency unknown")});
  }
  return chosen;
}

}  // namespace coldsnap
