#include "cc/artifact/artifact_json.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "cc/artifact/canonical_json.h"
#include "cc/artifact/json_text.h"
#include "cc/artifact/limits.h"
#include "cc/base/hex.h"
#include "cc/digest/sha256.h"
#include "rapidjson/document.h"
#include "rapidjson/stringbuffer.h"
#include "rapidjson/writer.h"

namespace coldsnap {
namespace {

using Json = rapidjson::Value;

Status Invalid(std::string message) { return Status(Code::kFormatInvalid, StrCat("artifact.json: ", message)); }

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

// The members of `object` are exactly `known`, less the optional extensions. The text is canonical, so none stands
// twice.
Status CheckMembers(const Json& object, std::string_view where, std::initializer_list<std::string_view> known) {
  for (const auto& member : object.GetObject()) {
    const std::string_view name(member.name.GetString(), member.name.GetStringLength());
    if (std::find(known.begin(), known.end(), name) == known.end() && !(where.empty() && name == "extensions")) {
      return Invalid(StrCat("the field ", Quoted(PathOf(where, name)), " is none of format 1"));
    }
  }
  for (const std::string_view name : known) {
    if (!object.HasMember(Json(rapidjson::StringRef(name.data(), name.size())))) {
      return Invalid(StrCat(PathOf(where, name), " is missing"));
    }
  }
  return Status::Ok();
}

// Reads members that CheckMembers has found; the first of the wrong kind is kept.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  void Take(std::string_view name, uint64_t& into) {
    if (const Json& value = At(name); value.IsUint64())
      into = value.GetUint64();
    else
      Problem(name, "an integer");
  }
  void Take(std::string_view name, std::string& into) {
    if (const Json& value = At(name); value.IsString())
      into.assign(value.GetString(), value.GetStringLength());
    else
      Problem(name, "a string");
  }
  void Take(std::string_view name, Sha256& into) {
    std::string hex;
    Take(name, hex);
    if (const auto digest = Sha256FromHex(hex))
      into = *digest;
    else
      Problem(name, "64 lower-case hex digits");
  }
  // The canonical text of an object.
  void TakeText(std::string_view name, std::string& into) {
    const Json& value = At(name);
    if (!value.IsObject()) return Problem(name, "an object");
    rapidjson::StringBuffer buffer;
    rapidjson::Writer<rapidjson::StringBuffer> writer(buffer);
    value.Accept(writer);
    auto canonical = CanonicalObject({buffer.GetString(), buffer.GetSize()});  // RapidJSON's escapes are not ours
    if (canonical.ok())
      into = *std::move(canonical);
    else
      Problem(name, "canonical");
  }
  Status status() const { return status_; }

 private:
  const Json& At(std::string_view name) const { return object_[Json(rapidjson::StringRef(name.data(), name.size()))]; }
  void Problem(std::string_view name, std::string_view wanted) {
    if (status_.ok()) status_ = Invalid(StrCat(PathOf(where_, name), " is not ", wanted));
  }

  const Json& object_;
  std::string where_;
  Status status_;
};

Result<ShardRecord> TakeShard(const Json& value, std::string where) {
  if (!value.IsObject()) return Invalid(StrCat(where, " is not an object"));
  RETURN_IF_ERROR(CheckMembers(
      value, where, {"blob_bytes", "leaves_bytes", "manifest_bytes", "manifest_sha256", "name", "shard_root"}));
  ShardRecord shard;
  Fields fields(value, std::move(where));
  fields.Take("blob_bytes", shard.blob_bytes);
  fields.Take("leaves_bytes", shard.leaves_bytes);
  fields.Take("manifest_bytes", shard.manifest_bytes);
  fields.Take("manifest_sha256", shard.manifest_sha256);
  fields.Take("name", shard.name);
  fields.Take("shard_root", shard.shard_root);
  RETURN_IF_ERROR(fields.status());
  return shard;
}

// What a newer format may change comes first, so that the message is about that.
Status CheckVersion(const Json& root) {
  if (!root.IsObject()) return Invalid("the document is not an object");
  if (!root.HasMember("format") || !root["format"].IsUint64()) return Invalid("format is missing or not an integer");
  if (const uint64_t format = root["format"].GetUint64(); format != kFormatVersion) {
    return Invalid(StrCat("format is ", format, "; this version reads format ", kFormatVersion));
  }
  if (!root.HasMember("required") || !root["required"].IsArray()) return Invalid("required is missing or not an array");
  if (root["required"].Empty()) return Status::Ok();
  const Json& feature = root["required"][0];
  return Invalid(StrCat(
      "the artifact requires the feature ", feature.IsString() ? Quoted(feature.GetString()) : "(not a string)",
      ", which this version doesn't know (it knows none); read it with the version that wrote it or a newer one"));
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
  auto canonical = CanonicalJson(text);
  if (!canonical.ok()) return Invalid(canonical.status().message());
  rapidjson::Document root;  // small, and its depth has just been bounded
  root.Parse<rapidjson::kParseIterativeFlag>(text.data(), text.size());
  if (root.HasParseError()) return Invalid(StrCat("the text can't be read at byte ", root.GetErrorOffset()));
  RETURN_IF_ERROR(CheckVersion(root));
  RETURN_IF_ERROR(CheckMembers(root, "", {"artifact_root", "capture", "format", "identity", "required", "shards"}));
  ArtifactRecord artifact;
  Fields fields(root, "");
  fields.Take("artifact_root", artifact.artifact_root);
  fields.TakeText("capture", artifact.capture);
  fields.TakeText("identity", artifact.identity);
  if (root.HasMember("extensions")) fields.TakeText("extensions", artifact.extensions);
  RETURN_IF_ERROR(fields.status());
  if (!root["shards"].IsArray()) return Invalid("shards is not an array");
  for (const Json& value : root["shards"].GetArray()) {
    ASSIGN_OR_RETURN(ShardRecord shard, TakeShard(value, StrCat("shards[", artifact.shards.size(), "]")));
    artifact.shards.push_back(std::move(shard));
  }
  if (const auto problem = ProblemOfShards(artifact.shards)) return Invalid(*problem);
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
