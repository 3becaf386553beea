#include "cc/artifact/artifact_json.h"

#include <string>
#include <string_view>

#include "cc/artifact/specs_for_test.h"
#include "cc/base/hex.h"
#include "cc/digest/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace coldsnap {
namespace {

using testing::HasSubstr;

constexpr std::string_view kIdentity = R"({"model":"m"})";
constexpr std::string_view kCapture = R"({"host":"h/","version":"1"})";

struct Shard {
  Manifest manifest;
  std::string text;
};
Shard MakeShard(std::string tensor, std::string_view identity = kIdentity) {
  Manifest manifest = MustMake(MustPlan({Raw(std::move(tensor), 65537, kBase)}), identity);
  return {manifest, WriteManifest(manifest)};
}

ArtifactRecord TwoShards() {
  const Shard first = MakeShard("w"), second = MakeShard("v");
  auto artifact = MakeArtifact(kIdentity, kCapture,
                               {MakeShardRecord("shard-00-01-00", second.manifest, second.text),
                                MakeShardRecord("shard-00-00-00", first.manifest, first.text)});
  EXPECT_TRUE(artifact.ok()) << artifact.status().message();
  return *std::move(artifact);
}

const std::string& Good() {
  static const std::string text = WriteArtifact(TwoShards());
  return text;
}

std::string After(std::string_view from, std::string_view to) {
  return RefusalAfter(from, to, Good(), "artifact.json", ParseArtifact);
}

TEST(ArtifactJsonTest, TheTextIsTheFormat) {
  const Shard shard = MakeShard("w");
  auto artifact = MakeArtifact(kIdentity, kCapture, {MakeShardRecord("shard-00-00-00", shard.manifest, shard.text)});
  ASSERT_TRUE(artifact.ok());
  const std::string root = ToHex(shard.manifest.shard_root);
  const std::string artifact_root = ShaHex(R"({"format":1,"identity":")" + ShaHex(kIdentity) +
                                           R"(","shards":[["shard-00-00-00",")" + root + R"("]]})");
  EXPECT_EQ(WriteArtifact(*artifact),
            R"({"artifact_root":")" + artifact_root +
                R"(","capture":{"host":"h/","version":"1"},"format":1,"identity":{"model":"m"},)" +
                R"("required":[],"shards":[{"blob_bytes":196608,"leaves_bytes":64,"manifest_bytes":)" +
                StrCat(shard.text.size()) + R"(,"manifest_sha256":")" + ShaHex(shard.text) +
                R"(","name":"shard-00-00-00","shard_root":")" + root + R"("}]})");
}

TEST(ArtifactJsonTest, ReadsBackWhatItWrote) {
  auto read = ParseArtifact(Good());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(WriteArtifact(*read), Good());
  ASSERT_EQ(read->shards.size(), 2U);
  EXPECT_EQ(read->shards[0].name, "shard-00-00-00");
  EXPECT_EQ(read->capture, kCapture);
  ArtifactRecord extended = TwoShards();
  extended.extensions = R"({"a":[1,null,true,"\u0001é"]})";
  read = ParseArtifact(WriteArtifact(extended));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->extensions, extended.extensions);
}

TEST(ArtifactJsonTest, TheAccountOfTheCaptureHasNoPartInTheRoot) {
  ArtifactRecord artifact = TwoShards();
  artifact.capture = "{}";
  auto read = ParseArtifact(WriteArtifact(artifact));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(ToHex(read->artifact_root), ToHex(TwoShards().artifact_root));
}

TEST(ArtifactJsonTest, ShardNames) {
  EXPECT_EQ(ShardName(0, 0, 0), "shard-00-00-00");
  EXPECT_EQ(ShardName(1, 12, 345), "shard-01-12-345");
  const auto make = [](std::string name) {
    const Shard shard = MakeShard("w");
    return MakeArtifact(kIdentity, "{}", {MakeShardRecord(std::move(name), shard.manifest, shard.text)})
        .status()
        .message();
  };
  EXPECT_EQ(make(ShardName(99, 100, 65535)), "");
  for (const std::string name :
       {"", "shard", "shard-0-00-00", "shard-00-00", "shard-00-00-00-00", "shard-00-00-00/..", "../shard-00-00-00",
        "shard-00-00-0x", "shard-000-00-00", "shard-00-00-123456", "Shard-00-00-00", "shard--00-00-00"}) {
    EXPECT_THAT(make(name), HasSubstr("not shard-<pp>-<tp>-<ep>")) << name;
  }
}

TEST(ArtifactJsonTest, RefusesWhatItCannotWrite) {
  const Shard shard = MakeShard("w");
  const ShardRecord record = MakeShardRecord("shard-00-00-00", shard.manifest, shard.text);
  EXPECT_THAT(MakeArtifact("{}", "{}", {}).status().message(), HasSubstr("there is no shard"));
  EXPECT_THAT(MakeArtifact("{}", "{}", {record, record}).status().message(), HasSubstr("names are unique"));
  EXPECT_THAT(MakeArtifact("[]", "{}", {record}).status().message(), HasSubstr("identity: "));
  EXPECT_THAT(MakeArtifact("{}", R"({"t":0.5})", {record}).status().message(), HasSubstr(R"(capture: JSON at "$.t")"));
}

TEST(ArtifactJsonTest, RefusesWhatIsNoArtifact) {
  EXPECT_THAT(After("{\"artifact", "{ \"artifact"), HasSubstr("not canonical at byte 1"));
  EXPECT_THAT(After("h/", "h\\/"), HasSubstr("not canonical at byte"));
  EXPECT_THAT(After("\"format\":1", "\"format\":2"), HasSubstr("format is 2; this version reads format 1"));
  EXPECT_THAT(After("\"format\":1", "\"format\":\"1\""), HasSubstr("format is \"1\"; this version reads format 1"));
  EXPECT_THAT(After("\"required\":[]", "\"required\":[\"x\"],\"new\":1"), HasSubstr("requires the feature \"x\""));
  EXPECT_THAT(After("\"required\":[]", "\"required\":[{}]"), HasSubstr("requires the feature"));
  EXPECT_THAT(After("\"required\":[],", ""), HasSubstr("required is missing"));
  EXPECT_THAT(After("\"format\":1", "\"format\":1,\"fresh\":1"), HasSubstr("the field \"fresh\" is none of format 1"));
  EXPECT_THAT(After("{\"blob_bytes\"", "{\"a\":1,\"blob_bytes\""), HasSubstr("the field \"shards[0].a\" is none"));
  EXPECT_THAT(After("\"leaves_bytes\":64,", ""), HasSubstr("shards[0].leaves_bytes is missing"));
  EXPECT_THAT(After("\"leaves_bytes\":64", "\"leaves_bytes\":\"64\""),
              HasSubstr("shards[0].leaves_bytes is not an integer"));
  EXPECT_THAT(After("\"capture\":{", "\"capture\":[],\"extensions\":{"), HasSubstr("capture is not an object"));
  EXPECT_THAT(After("shard-00-00-00", "shard-00-02-00"), HasSubstr("stands after"));
  EXPECT_THAT(After("shard-00-00-00", "../../../../etc"), HasSubstr("shards[0].name is"));
  EXPECT_THAT(After("\"model\":\"m\"", "\"model\":\"n\""), HasSubstr("artifact_root is "));
  EXPECT_THAT(After("\"artifact_root\":\"", "\"artifact_root\":\"0"),
              HasSubstr("artifact_root is not 64 lower-case hex digits"));
  EXPECT_THAT(After("\"shards\":[", "\"shards\":[7,"), HasSubstr("shards[0] is not an object"));
  EXPECT_THAT(ParseArtifact("[]").status().message(), HasSubstr("doesn't start with an object"));
  std::string object_of_shards = Good() + "}";
  const std::string_view array = "\"shards\":[";
  object_of_shards.replace(object_of_shards.find(array), array.size(), "\"shards\":{\"a\":[");
  EXPECT_THAT(ParseArtifact(object_of_shards).status().message(), HasSubstr("shards is not an array"));
  for (size_t size = 0; size < Good().size(); ++size) {
    EXPECT_FALSE(ParseArtifact(std::string_view(Good()).substr(0, size)).ok()) << "cut at " << size;
  }
  EXPECT_FALSE(ParseArtifact(Good() + "\n").ok());
  EXPECT_FALSE(ParseArtifact(std::string(1'000'000, '[')).ok());
}

TEST(ArtifactJsonTest, AShardsManifestIsTheOneThatIsListed) {
  const ArtifactRecord artifact = TwoShards();
  const Shard first = MakeShard("w");
  EXPECT_TRUE(ParseShardManifest(artifact, 0, first.text).ok());
  const Status shorter = ParseShardManifest(artifact, 0, "{}").status();
  EXPECT_EQ(shorter.code(), Code::kDataLoss);
  EXPECT_THAT(shorter.message(), HasSubstr("shard-00-00-00/manifest.json: its size is 2 but artifact.json says"));
  const Status other = ParseShardManifest(artifact, 1, first.text).status();
  EXPECT_EQ(other.code(), Code::kDataLoss);
  EXPECT_THAT(other.message(), HasSubstr("its SHA-256 is"));
}

TEST(ArtifactJsonTest, ArtifactAndManifestMustAgree) {
  const Shard shard = MakeShard("w", "{}");
  const auto parse = [&](auto change) {
    ShardRecord record = MakeShardRecord("shard-00-00-00", shard.manifest, shard.text);
    change(record);
    return ParseShardManifest(*MakeArtifact("{}", "{}", {record}), 0, shard.text).status().message();
  };
  EXPECT_EQ(parse([](ShardRecord&) {}), "");
  EXPECT_THAT(parse([](ShardRecord& r) { r.blob_bytes += 1; }),
              HasSubstr("blob_bytes is 196608 but artifact.json says 196609"));
  EXPECT_THAT(parse([](ShardRecord& r) { r.leaves_bytes = 32; }), HasSubstr("the size of its leaves is 64"));
  EXPECT_THAT(parse([](ShardRecord& r) { r.shard_root = {}; }), HasSubstr("shard_root is "));
  const ArtifactRecord other =
      *MakeArtifact(kIdentity, "{}", {MakeShardRecord("shard-00-00-00", shard.manifest, shard.text)});
  EXPECT_THAT(ParseShardManifest(other, 0, shard.text).status().message(),
              HasSubstr("identity is \"{}\" but artifact.json says"));
}

}  // namespace
}  // namespace coldsnap
