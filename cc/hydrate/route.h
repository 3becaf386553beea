// Which staged route a restore takes, from evidence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/file/blob_reader.h"
#include "cc/hydrate/open_artifact.h"

namespace coldsnap {

// What the caller named; kAuto lets us choose.
enum class Backend : uint8_t { kAuto, kBuffered, kDirect };

// Why something was decided. The codes are stable, the details are for people.
struct Reason {
  std::string code;
  std::string detail;
};

struct ChosenRoute {
  BlobReader reader;
  std::vector<Reason> reasons;
  std::optional<double> residency;  // of the blob, 0..1, before the restore; none where the system can't tell
};

// One route for the whole blob. An explicit backend is opened or refused. kAuto takes buffered when at least half of
// the blob is in the page cache, else direct when a trial read works, else buffered; a residency that can't be read
// counts as none.
Result<ChosenRoute> ChooseRoute(const OpenArtifact& artifact, Backend backend);

Result<double> Residency(const OpenArtifact& artifact);

}  // namespace coldsnap
