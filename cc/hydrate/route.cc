#include "cc/hydrate/route.h"

#include <numeric>
#include <utility>

#include "cc/sys/files.h"

namespace coldsnap {
namespace {

// Beyond these the rest is noise: pages of the header that opening has read, a few that the kernel took away.
constexpr double kAllResident = 0.999;
constexpr double kNoneResident = 0.001;

std::string Percent(double fraction) {
  return StrCat(static_cast<int>(fraction * 100), " % of the blob is in the page cache");
}

}  // namespace

Result<double> Residency(const OpenArtifact& artifact) {
  const uint64_t blob_bytes = artifact.manifest().blob_bytes;
  ASSIGN_OR_RETURN(const uint64_t resident, ResidentBytes(artifact.blob_fd(), blob_bytes, kBlobFile));
  return static_cast<double>(resident) / static_cast<double>(blob_bytes);
}

Status Routes::OpenOne(Route route) {
  Result<BlobReader> reader = BlobReader::Open(route, artifact_->shard_dir_fd(), kBlobFile, artifact_->blob_fd());
  if (!reader.ok()) return std::move(reader).status();
  (route == Route::kDirect ? direct_ : buffered_) = *std::move(reader);
  return Status::Ok();
}

// For a blob that is not wholly in the page cache.
Status Routes::OpenBoth(const Reason& cold) {
  RETURN_IF_ERROR(OpenOne(Route::kBuffered));
  const Status direct = OpenOne(Route::kDirect);
  if (!direct.ok() && direct.code() != Code::kRouteUnavailable) return direct;
  if (!direct.ok()) reasons_ = {cold, {"direct_refused_probe", direct.message()}};
  return Status::Ok();
}

Result<Routes> Routes::Open(const OpenArtifact& artifact, Backend backend) {
  Routes routes(artifact);
  const Result<double> residency = Residency(artifact);
  if (residency.ok()) routes.residency_ = *residency;
  const std::string evidence = residency.ok() ? Percent(*residency) : residency.status().message();
  if (backend != Backend::kAuto) {
    // Whoever named it knows why.
    RETURN_IF_ERROR(routes.OpenOne(backend == Backend::kDirect ? Route::kDirect : Route::kBuffered));
  } else if (residency.ok() && *residency >= kAllResident) {
    routes.reasons_ = {{"resident", evidence}};
    RETURN_IF_ERROR(routes.OpenOne(Route::kBuffered));
  } else {
    const bool mixed = residency.ok() && *residency > kNoneResident;
    RETURN_IF_ERROR(routes.OpenBoth({!residency.ok() ? "residency_unknown" : mixed ? "mixed" : "cold", evidence}));
    if (routes.direct_ && !mixed) {
      routes.reasons_ = {{residency.ok() ? "cold" : "residency_unknown", evidence}};
      routes.buffered_.reset();
    }
  }
  // Linux 6.6 and later take O_DIRECT on tmpfs and serve it from memory: no drive was read, and the receipt must say
  // so.
  if (routes.direct_ && IsMemoryBacked(artifact.blob_fd())) {
    const std::string known = residency.ok() ? evidence : "residency unknown";
    routes.reasons_.push_back({"direct_served_from_memory", StrCat("the file system lives in memory; ", known)});
  }
  return routes;
}

Routes::Dealt Routes::Deal(const ReadPlan& plan) {
  Dealt dealt{.buffered = {.reader = buffered_ ? &*buffered_ : nullptr},
              .direct = {.reader = direct_ ? &*direct_ : nullptr},
              .reasons = std::move(reasons_)};
  if (!buffered_ || !direct_) {
    std::vector<uint32_t>& all = (direct_ ? dealt.direct : dealt.buffered).windows;
    all.resize(plan.windows.size());
    std::iota(all.begin(), all.end(), 0U);
    return dealt;
  }
  for (uint32_t i = 0; i < plan.windows.size(); ++i) {
    const Window& window = plan.windows[i];
    const uint64_t offset = AlignDown(window.file_offset, kLeafBytes);  // whole pages are asked for, of whatever size
    const Result<uint64_t> resident =
        ResidentBytes(artifact_->blob_fd(), offset, window.file_offset + window.nbytes - offset, kBlobFile);
    const bool cached = resident.ok() && *resident >= window.nbytes / 2;
    (cached ? dealt.buffered : dealt.direct).windows.push_back(i);
  }
  const size_t cached = dealt.buffered.windows.size();
  const char* const code = cached == plan.windows.size() ? "resident" : cached == 0 ? "cold" : "mixed";
  dealt.reasons.insert(dealt.reasons.begin(), {code, StrCat(Percent(*residency_), ": ", cached, " of ",
                                                            plan.windows.size(), " reads are from there")});
  return dealt;
}

}  // namespace coldsnap
