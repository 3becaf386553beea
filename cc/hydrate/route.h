// By which way each part of a blob is read, from evidence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/file/blob_reader.h"
#include "cc/hydrate/gds_reader.h"
#include "cc/hydrate/open_artifact.h"
#include "cc/hydrate/plan.h"
#include "cc/hydrate/readers.h"

namespace coldsnap {

// What the caller named; kAuto lets us choose.
enum class Backend : uint8_t { kAuto, kBuffered, kDirect, kGds };

// What a choice of routes depends on besides the blob.
struct RouteChoice {
  Backend backend = Backend::kAuto;
  bool needs_host = true;      // the bytes must pass host memory: digests are computed there
  SharedGdsDriver gds_driver;  // none: the process's own, opened where it is needed
};

// The readers that a restore may use. An explicit backend has one of them or is refused; kAuto has two where a part of
// the blob is in the page cache and the file can be read past it, which a trial read or cuFile's driver has proved.
class Routes {
 public:
  static Result<Routes> Open(const OpenArtifact& artifact, const RouteChoice& choice);

  // What every window's place and size must be a multiple of.
  uint64_t alignment_bytes() const { return direct_ ? direct_->alignment_bytes() : 1; }
  // Whether the drive decides how long the restore takes, so that what suits it suits the restore: bytes from the page
  // cache come twenty times as fast.
  bool BoundByTheDrive() const;
  // Where the windows of Dealt::direct go by GPUDirect Storage.
  GdsReader* gds() { return gds_ ? &*gds_ : nullptr; }
  // Of the whole blob, 0..1, before the restore; none where the system can't tell.
  std::optional<double> residency() const { return residency_; }

  // Deals the windows out: with two readers, a window of which half is in the page cache is read from there. The
  // readers are the object's own. May be called once.
  struct Dealt {
    Share buffered;
    Share direct;  // past the page cache
    std::vector<Reason> reasons;
  };
  Dealt Deal(const ReadPlan& plan);

 private:
  explicit Routes(const OpenArtifact& artifact) : artifact_(&artifact) {}
  Status OpenNamed(const RouteChoice& choice);
  Status Choose(const RouteChoice& choice, const Result<double>& residency);
  Status OpenPast(const RouteChoice& choice);
  Status OpenOne(Route route);

  const OpenArtifact* artifact_;
  std::optional<BlobReader> buffered_;
  std::optional<BlobReader> direct_;
  std::optional<GdsReader> gds_;
  std::optional<double> residency_;
  std::vector<Reason> reasons_;
};

Result<double> Residency(const OpenArtifact& artifact);

}  // namespace coldsnap
