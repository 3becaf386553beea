#include "cc/hydrate/route.h"

#include <numeric>
#include <utility>

#include "cc/sys/files.h"

namespace coldsnap {
namespace {

// Beyond these the rest is noise: pages of the header that opening has read, a few that the kernel took away.
constexpr double kAllResident = 0.999;
constexpr double kNoneResident = 0.001;
constexpr double kMostlyResident = 0.95;

std::string Percent(double fraction) {
  return StrCat(static_cast<int>(fraction * 100), " % of the blob is in the page cache");
}

const char* WhyNotGds(const Status& status) {
  if (status.code() == Code::kNotAdmitted) return "not_preverified";
  // The library is there and refuses to read past host memory; through it, in compatible mode, it would.
  return status.domain() == Domain::kGds ? "gds_compat_only" : "gds_no_driver";
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

Status Routes::OpenNamed(const RouteChoice& choice) {
  if (choice.backend == Backend::kBuffered) return OpenOne(Route::kBuffered);
  if (choice.backend == Backend::kDirect) return OpenOne(Route::kDirect);
  if (choice.needs_host) {
    return Status(Code::kNotAdmitted,
                  "hydrate by gds: the bytes never pass host memory, where digests were to be computed, so it takes "
                  "digests "
                  "on the device, or an artifact that was verified as a whole before")
        .WithRemedy(
            "set COLDSNAP_VERIFY_PLACE=device, or admit the artifact (coldsnap verify --admit) and set "
            "COLDSNAP_HIBERNATE_VERIFY_MODE=preverified");
  }
  ASSIGN_OR_RETURN(gds_, GdsReader::Open(*artifact_, choice.gds_driver));
  return Status::Ok();
}

// The way past the page cache: gds where the machine has it and the artifact is admitted, else direct, else none.
Status Routes::OpenPast(const RouteChoice& choice) {
  if (choice.gds_driver != nullptr || HasNvidiaFs({})) {
    Result<GdsReader> gds = choice.needs_host
                                ? Result<GdsReader>(Status(Code::kNotAdmitted, "its bytes could not be verified"))
                                : GdsReader::Open(*artifact_, choice.gds_driver);
    if (gds.ok()) {
      gds_ = *std::move(gds);
      return Status::Ok();
    }
    reasons_.push_back({WhyNotGds(gds.status()), StrCat("not gds: ", gds.status().message())});
  }
  const Status direct = OpenOne(Route::kDirect);
  if (direct.code() != Code::kRouteUnavailable) return direct;
  reasons_.push_back({"direct_refused_probe", direct.message()});
  return Status::Ok();
}

Status Routes::Choose(const RouteChoice& choice, const Result<double>& residency) {
  const std::string evidence = residency.ok() ? Percent(*residency) : residency.status().message();
  if (residency.ok() && *residency >= kAllResident) {
    reasons_.push_back({"resident", evidence});
    return OpenOne(Route::kBuffered);
  }
  RETURN_IF_ERROR(OpenPast(choice));
  const bool past = direct_ || gds_;
  const bool mixed = residency.ok() && *residency > kNoneResident;
  if (!past || mixed) RETURN_IF_ERROR(OpenOne(Route::kBuffered));
  if (past && mixed) return Status::Ok();  // dealing them out finds the reason
  reasons_.insert(reasons_.begin(), {!residency.ok() ? "residency_unknown" : mixed ? "mixed" : "cold", evidence});
  return Status::Ok();
}

Result<Routes> Routes::Open(const OpenArtifact& artifact, const RouteChoice& choice) {
  Routes routes(artifact);
  const Result<double> residency = Residency(artifact);
  if (residency.ok()) routes.residency_ = *residency;
  RETURN_IF_ERROR(choice.backend == Backend::kAuto ? routes.Choose(choice, residency) : routes.OpenNamed(choice));
  // Linux 6.6 and later take O_DIRECT on tmpfs and serve it from memory: no drive was read, and the receipt must say
  // so.
  if (routes.direct_ && IsMemoryBacked(artifact.blob_fd())) {
    const std::string known = residency.ok() ? Percent(*residency) : "residency unknown";
    routes.reasons_.push_back({"direct_served_from_memory", StrCat("the file system lives in memory; ", known)});
  }
  return routes;
}

bool Routes::BoundByTheDrive() const {
  if (!direct_ && !gds_) return false;
  return !buffered_ || residency_.value_or(0) < kMostlyResident;
}

Routes::Dealt Routes::Deal(const ReadPlan& plan) {
  Dealt dealt{.buffered = {.reader = buffered_ ? &*buffered_ : nullptr},
              .direct = {.reader = direct_ ? &*direct_ : nullptr},
              .reasons = std::move(reasons_)};
  const bool past = direct_ || gds_;
  if (!buffered_ || !past) {
    std::vector<uint32_t>& all = (past ? dealt.direct : dealt.buffered).windows;
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
