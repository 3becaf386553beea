#include "cc/artifact/artifact_json.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "cc/artifact/canonical_json.h"
#include "cc/artifact/json_text.h"
#include "cc/artifact/limits.h"
#include "cc/base/hex.h"
#include "cc/digest/sha256.h"

namespace coldsnap {
namespace {

Status Invalid(std::string_view message) { return Status(Code::kFormatInvalid, StrCat("artifact.json: ", message)); }

Sha256 DigestOfText(std::string_view text) { return Sha256Of(std::as_bytes(std::span(text))); }

// shard-<pp>-<tp>-<ep>: it becomes a folder's name, so nothing else may be in it. 2 to 5 digits each, two where two do.
bool IsShardName(std::string_view name) {
  constexpr std::string_view kStem = "shard";
  if (!name.starts_with(kStem)) return false;
  name.remove_prefix(kStem.size());
  for (int number = 0; number < 3; ++number) {
    if (name.empty() || name.front() != '-') return false;
    name.remove_prefix(1);
    const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    if (digits < 2 || digits > 5 || (digits > 2 && name.front() == '0')) return false;
    name.remove_prefix(digits);
  }
  return name.empty();
}

// Names valid, each once, in order. Gives the message of what is wrong.
std::optional<std::string> ProblemOfShards(const std::vector<ShardRecord>& shards) {
  if (shards.empty()) return "there is no shard";
  for (size_t i = 0; i < shards.size(); ++i) {
    if (!IsShardName(shards[i].name)) {
      return StrCat("shards[", i, "].name is ", Quoted(shards[i].name),
                    ", not shard-<pp>-<tp>-<ep> with at least two digits each");
    }
    if (i > 0 && shards[i].name <= shards[i - 1].name) {
      return StrCat("shards[", i, "] ", Quoted(shards[i].name), " stands after ", Quoted(shards[i - 1].name),
                    "; names are unique and in order of their bytes");
    }
  }
  return std::nullopt;
}

Sha256 RootOf(const ArtifactRecord& artifact) {
  std::string text = StrCat(R"({"format":)", kFormatVersion, R"(,"identity":")",
                            ToHex(IdentityDigest(artifact.identity)), R"(","shards":[)");
  for (size_t i = 0; i < artifact.shards.size(); ++i) {
    const ShardRecord& shard = artifact.shards[i];
    text.append(StrCat(i > 0 ? "," : "", R"([")", shard.name, R"(",")", ToHex(shard.shard_root), R"("])"));
  }
  return DigestOfText(text.append("]}"));
}

std::string PathOf(std::string_view where, std::string_view name) {
  return StrCat(where, where.empty() ? "" : ".", name);
}

// The fields of one object. Each is taken once; what is left over, missing or of the wrong kind is remembered, and the
// first of these becomes the status.
class Fields {
 public:
  Fields(std::vector<JsonMember> members, std::string where) : members_(std::move(members)), where_(std::move(where)) {}

  // The canonical text of the field's value; nothing when there is no such field.
  std::optional<std::string> TakeText(std::string_view name) {
    const auto member = std::find_if(members_.begin(), members_.end(), [&](const auto& m) { return m.key == name; });
    if (member == members_.end()) return std::nullopt;
    std::string text = std::move(member->value);
    members_.erase(member);
    return text;
  }
  void Take(std::string_view name, uint64_t& into) {
    const std::string text = Wanted(name);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
    if (error != std::errc() || end != text.data() + text.size()) Problem(name, " is not an integer");
  }
  // Only strings without escapes: digests and names of shards.
  void Take(std::string_view name, std::string& into) {
    const std::string text = Wanted(name);
    if (text.size() < 2 || text.front() != '"') return Problem(name, " is not a string");
    into = text.substr(1, text.size() - 2);
  }
  void Take(std::string_view name, Sha256& into) {
    std::string hex;
    Take(name, hex);
    if (const auto digest = Sha256FromHex(hex)) {
      into = *digest;
    } else {
      Problem(name, " is not 64 lower-case hex digits");
    }
  }
  void TakeObject(std::string_view name, std::string& into) {
    into = Wanted(name);
    if (!into.starts_with('{')) Problem(name, " is not an object");
  }
  void TakeArray(std::string_view name, std::string& into) {
    into = Wanted(name);
    if (!into.starts_with('[')) Problem(name, " is not an array");
  }

  Status Finish() {
    if (status_.ok() && !members_.empty()) {
      return Invalid(StrCat("the field ", Quoted(PathOf(where_, members_.front().key)), " is none of format 1"));
    }
    return status_;
  }

 private:
  std::string Wanted(std::string_view name) {
    auto text = TakeText(name);
    if (!text) Problem(name, " is missing");
    return std::move(text).value_or("");
  }
  void Problem(std::string_view name, std::string_view what) {
    if (status_.ok()) status_ = Invalid(StrCat(PathOf(where_, name), what));
  }

  std::vector<JsonMember> members_;
  std::string where_;
  Status status_;
};

Result<ShardRecord> TakeShard(const std::string& text, std::string where) {
  if (!text.starts_with('{')) return Invalid(StrCat(where, " is not an object"));
  ASSIGN_OR_RETURN(auto members, CanonicalMembers(text));
  ShardRecord shard;
  Fields fields(std::move(members), std::move(where));
  fields.Take("blob_bytes", shard.blob_bytes);
  fields.Take("leaves_bytes", shard.leaves_bytes);
  fields.Take("manifest_bytes", shard.manifest_bytes);
  fields.Take("manifest_sha256", shard.manifest_sha256);
  fields.Take("name", shard.name);
  fields.Take("shard_root", shard.shard_root);
  RETURN_IF_ERROR(fields.Finish());
  return shard;
}

Result<std::vector<ShardRecord>> TakeShards(const std::string& text) {
  const auto elements = CanonicalMembers(text);
  if (!elements.ok()) return Invalid(StrCat("shards: ", elements.status().message()));
  std::vector<ShardRecord> shards;
  for (const JsonMember& element : *elements) {
    ASSIGN_OR_RETURN(ShardRecord shard, TakeShard(element.value, StrCat("shards[", shards.size(), "]")));
    shards.push_back(std::move(shard));
  }
  if (const auto problem = ProblemOfShards(shards)) return Invalid(*problem);
  return shards;
}

// What a newer format may change comes first, so that the message is about that.
Status CheckVersion(Fields& fields) {
  const std::string format = fields.TakeText("format").value_or("missing");
  if (format != StrCat(kFormatVersion)) {
    return Invalid(StrCat("format is ", format.substr(0, 20), "; this version reads format ", kFormatVersion));
  }
  const std::string required = fields.TakeText("required").value_or("missing");
  if (required == "[]") return Status::Ok();
  if (!required.starts_with('[')) return Invalid("required is missing or not an array");
  const auto features = CanonicalMembers(required);
  if (!features.ok()) return Invalid(StrCat("required: ", features.status().message()));
  return Invalid(StrCat("the artifact requires the feature ", features->front().value.substr(0, 80),
                        ", which this version doesn't know (it knows none); read it with the version that wrote it or "
                        "a newer one"));
}

}  // namespace

std::string ShardName(uint32_t pp, uint32_t tp, uint32_t ep) {
  std::string name = "shard";
  for (const uint32_t number : {pp, tp, ep}) name.append(number < 10 ? "-0" : "-").append(std::to_string(number));
  return name;
}

Sha256 IdentityDigest(std::string_view canonical_identity) { return DigestOfText(canonical_identity); }

ShardRecord MakeShardRecord(std::string name, const Manifest& manifest, std::string_view manifest_text) {
  return {.name = std::move(name),
          .blob_bytes = manifest.blob_bytes,
          .leaves_bytes = LeavesBytes(manifest.extents),
          .manifest_bytes = manifest_text.size(),
          .manifest_sha256 = DigestOfText(manifest_text),
          .shard_root = manifest.shard_root};
}

Result<ArtifactRecord> MakeArtifact(std::string_view identity_json, std::string_view capture_json,
                                    std::vector<ShardRecord> shards) {
  ArtifactRecord artifact;
  auto identity = CanonicalObject(identity_json);
  if (!identity.ok()) return std::move(identity).status().Prefixed("identity: ");
  auto capture = CanonicalObject(capture_json);
  if (!capture.ok()) return std::move(capture).status().Prefixed("capture: ");
  artifact.identity = *std::move(identity);
  artifact.capture = *std::move(capture);
  std::sort(shards.begin(), shards.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  if (auto problem = ProblemOfShards(shards))
    return Status(Code::kRequestInvalid, StrCat("write artifact.json: ", *problem));
  artifact.shards = std::move(shards);
  artifact.artifact_root = RootOf(artifact);
  return artifact;
}

std::string WriteArtifact(const ArtifactRecord& artifact) {
  std::string out = StrCat(R"({"artifact_root":")", ToHex(artifact.artifact_root), R"(","capture":)", artifact.capture);
  if (!artifact.extensions.empty()) out.append(R"(,"extensions":)").append(artifact.extensions);
  out.append(
      StrCat(R"(,"format":)", kFormatVersion, R"(,"identity":)", artifact.identity, R"(,"required":[],"shards":[)"));
  for (size_t i = 0; i < artifact.shards.size(); ++i) {
    const ShardRecord& shard = artifact.shards[i];
    out.append(StrCat(i > 0 ? "," : "", R"({"blob_bytes":)", shard.blob_bytes, R"(,"leaves_bytes":)",
                      shard.leaves_bytes, R"(,"manifest_bytes":)", shard.manifest_bytes, R"(,"manifest_sha256":")",
                      ToHex(shard.manifest_sha256), R"(","name":")", shard.name, R"(","shard_root":")",
                      ToHex(shard.shard_root), R"("})"));
  }
  return out.append("]}");
}

Result<ArtifactRecord> ParseArtifact(std::string_view text) {
  auto members = CanonicalMembers(text);
  if (!members.ok()) return Invalid(members.status().message());
  if (!text.starts_with('{')) return Invalid("the document doesn't start with an object");
  Fields fields(*std::move(members), "");
  RETURN_IF_ERROR(CheckVersion(fields));
  ArtifactRecord artifact;
  std::string shards;
  fields.Take("artifact_root", artifact.artifact_root);
  fields.TakeObject("capture", artifact.capture);
  fields.TakeObject("identity", artifact.identity);
  fields.TakeArray("shards", shards);
  artifact.extensions = fields.TakeText("extensions").value_or("");
  RETURN_IF_ERROR(fields.Finish());
  if (!artifact.extensions.empty() && artifact.extensions.front() != '{') return Invalid("extensions is not an object");
  ASSIGN_OR_RETURN(artifact.shards, TakeShards(shards));
  if (const Sha256 root_digest = RootOf(artifact); artifact.artifact_root != root_digest) {
    return Invalid(StrCat("artifact_root is ", ToHex(artifact.artifact_root), " but format, identity and shards have ",
                          ToHex(root_digest)));
  }
  const std::string expected = WriteArtifact(artifact);
  if (text == expected) return artifact;
  const size_t same = static_cast<size_t>(
      std::mismatch(text.begin(), text.end(), expected.begin(), expected.end()).first - text.begin());
  return Invalid(StrCat("not canonical at byte ", same, ": ", Quoted(text.substr(same, 24))));
}

Result<Manifest> ParseShardManifest(const ArtifactRecord& artifact, size_t shard, std::string_view manifest_text) {
  COLDSNAP_CHECK(shard < artifact.shards.size());
  const ShardRecord& record = artifact.shards[shard];
  const auto differs = [&](std::string_view what, const auto& has, const auto& wanted) {
    return Status(Code::kDataLoss,
                  StrCat(record.name, "/manifest.json: ", what, " is ", has, " but artifact.json says ", wanted));
  };
  if (manifest_text.size() != record.manifest_bytes)
    return differs("its size", manifest_text.size(), record.manifest_bytes);
  if (const Sha256 digest = DigestOfText(manifest_text); digest != record.manifest_sha256) {
    return differs("its SHA-256", ToHex(digest), ToHex(record.manifest_sha256));
  }
  auto manifest = ParseManifest(manifest_text);
  if (!manifest.ok()) return std::move(manifest).status().Prefixed(StrCat(record.name, "/"));
  // The digest held, so a difference from here on is the writer's doing, not damage.
  const auto contradicts = [&](std::string_view what, const auto& has, const auto& wanted) {
    return Status(Code::kFormatInvalid,
                  StrCat(record.name, "/manifest.json: ", what, " is ", has, " but artifact.json says ", wanted));
  };
  if (manifest->blob_bytes != record.blob_bytes)
    return contradicts("blob_bytes", manifest->blob_bytes, record.blob_bytes);
  if (manifest->shard_root != record.shard_root)
    return contradicts("shard_root", ToHex(manifest->shard_root), ToHex(record.shard_root));
  if (manifest->identity != artifact.identity)
    return contradicts("identity", Quoted(manifest->identity), Quoted(artifact.identity));
  if (const uint64_t leaves = LeavesBytes(manifest->extents); leaves != record.leaves_bytes) {
    return contradicts("the size of its leaves", leaves, record.leaves_bytes);
  }
  return manifest;
}

}  // namespace coldsnap
