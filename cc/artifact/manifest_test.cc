#include "cc/artifact/manifest.h"

#include <chrono>
#include <string>
#include <vector>

#include "cc/artifact/specs_for_test.h"
#include "cc/base/hex.h"
#include "cc/digest/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace coldsnap {
namespace {

using testing::HasSubstr;

Layout TwoTensors() {
  TensorSpec weight = Whole("w", "BF16", {256, 128}, kBase);
  weight.role = "parameter";
  weight.attrs = {"requires_grad=0", "persistent=1"};
  return MustPlan({weight, Whole("none", "F32", {0}, 0)});
}

// Every byte of a small manifest, so that a change of the format can't pass unseen.
TEST(ManifestTest, TheTextIsTheFormat) {
  const Manifest manifest = MustMake(TwoTensors(), R"({"model":"m"})", R"({"b":2,"a":"f64:3ff0000000000000"})");
  const std::string tensors =
      R"({"attrs":[[],["persistent=1","requires_grad=0"]],"dtypes":["F32","BF16"],"extent":[null,0],"names":["none","w"],)"
      R"("objects":[0,1],"offset":[0,0],"roles":["","parameter"],"shapes":[[0],[256,128]],"strides":[[1],[128,1]]})";
  const std::string scalars = R"({"a":"f64:3ff0000000000000","b":2})";
  const std::string zeros(64, '0');
  const std::string extents =
      R"({"crc32":["00000000"],"file_offset":[65536],"nbytes":[65536],"sha256t":[")" + zeros + R"("]})";
  const std::string layout_digest = ShaHex(R"({"scalars":)" + scalars + R"(,"tensors":)" + tensors + "}");
  const std::string header_sha256 = ShaHex(TwoTensors().header);
  const std::string shard_root =
      ShaHex(R"({"blob_bytes":131072,"extents_digest":")" + ShaHex(R"({"extents":)" + extents + "}") +
             R"(","header_sha256":")" + header_sha256 + R"(","layout_digest":")" + layout_digest +
             R"(","leaves_sha256":")" + zeros + R"("})");
  EXPECT_EQ(WriteManifest(manifest), R"({"blob_bytes":131072,"data_start":65536,"extents":)" + extents +
                                         R"(,"format":1,"header_sha256":")" + header_sha256 +
                                         R"(","identity":{"model":"m"},"layout_digest":")" + layout_digest +
                                         R"(","leaves_sha256":")" + zeros + R"(","required":[],"scalars":)" + scalars +
                                         R"(,"shard_root":")" + shard_root + R"(","tensors":)" + tensors + "}");
}

TEST(ManifestTest, ReadsBackWhatItWrote) {
  const Manifest manifest = MustMake(TwoTensors(), R"({"model":"m"})", R"({"b":[1,{"c":null}]})");
  auto read = ParseManifest(WriteManifest(manifest));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(WriteManifest(*read), WriteManifest(manifest));
  EXPECT_EQ(read->tensors[1].role, "parameter");
  EXPECT_EQ(read->scalars, R"({"b":[1,{"c":null}]})");
  EXPECT_EQ(ToHex(read->shard_root), ToHex(manifest.shard_root));
  EXPECT_EQ(ExpectedHeader(*read), TwoTensors().header);
  EXPECT_EQ(LeavesBytes(read->extents), 32U);
}

TEST(ManifestTest, NoTensorsAreAManifest) {
  const std::string text = WriteManifest(MustMake(MustPlan({})));
  EXPECT_TRUE(ParseManifest(text).ok()) << ParseManifest(text).status().message();
}

TEST(ManifestTest, ExtensionsAreKept) {
  Manifest manifest = MustMake(TwoTensors());
  manifest.extensions = R"({"org.example":{"note":"x"}})";
  auto read = ParseManifest(WriteManifest(manifest));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->extensions, manifest.extensions);
  EXPECT_EQ(ToHex(read->shard_root), ToHex(MustMake(TwoTensors()).shard_root));
}

TEST(ManifestTest, LeavesAreCountedPerExtent) {
  const Layout layout = MustPlan({Raw("a", 1, kBase), Raw("b", 65535, kBase + kMiB), Raw("c", 65536, kBase + 2 * kMiB),
                                  Raw("d", 65537, kBase + 3 * kMiB), Raw("e", 131072, kBase + 4 * kMiB)});
  EXPECT_EQ(LeavesBytes(MustMake(layout).extents), 32U * (1 + 1 + 1 + 2 + 2));
}

TEST(ManifestTest, RefusesWhatItCannotWrite) {
  const auto make = [](size_t digests, std::string_view identity, std::string_view scalars) {
    return MakeManifest(TwoTensors(), std::vector<ExtentDigests>(digests), Sha256{}, identity, scalars)
        .status()
        .message();
  };
  EXPECT_THAT(make(2, "{}", "{}"), HasSubstr("2 digests for 1 extents"));
  EXPECT_THAT(make(1, "[]", "{}"), HasSubstr("identity: JSON: an object is wanted"));
  EXPECT_THAT(make(1, "{}", R"({"a":1.5})"), HasSubstr(R"(scalars: JSON at "$.a": a number)"));
  EXPECT_THAT(make(1, "{}", R"({"a":[[[[[[[]]]]]]]})"), HasSubstr("nested deeper than 7"));
}

// A million extents: the header would pass safetensors' limit, so groups stand in it; everything is read back.
TEST(ManifestTest, AMillionExtents) {
  constexpr uint64_t kExtents = 1'000'000;
  std::vector<TensorSpec> specs;
  specs.reserve(kExtents);
  for (uint64_t i = 0; i < kExtents; ++i) specs.push_back(Raw(StrCat("layer.", i), 512 + i % 5, kBase + i * 65536));
  const Manifest manifest = MustMake(MustPlan(std::move(specs)));
  EXPECT_LT(manifest.data_start, 4 * kMiB);
  const std::string text = WriteManifest(manifest);
  const auto begin = std::chrono::steady_clock::now();
  const auto read = ParseManifest(text);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->extents.size(), kExtents);
  RecordProperty("parse_ms", static_cast<int>(took.count()));
  RecordProperty("text_bytes", static_cast<int>(text.size()));
}

}  // namespace
}  // namespace coldsnap
