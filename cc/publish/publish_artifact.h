// Stage 5 of a capture, second half: the one moment at which finished shards become an artifact.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cc/artifact/artifact_json.h"
#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/publish/incoming.h"

namespace coldsnap {

// Writes artifact.json over the shards, which stand in the folder and are on the drive, syncs the folder and moves it
// to `destination`. Returns the artifact's root.
//
// kExists if something is at `destination`, whose parent must be there. A record whose files are missing or have other
// sizes is kRequestInvalid. After a failure nothing is at `destination` and the folder is gone.
Result<Sha256> PublishArtifact(Incoming incoming, std::vector<ShardRecord> shards, std::string_view identity_json,
                               std::string_view capture_json, const std::string& destination);

}  // namespace coldsnap
