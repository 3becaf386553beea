// What is no manifest is refused, with a message that leads to the place; nothing crashes.
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "cc/artifact/manifest.h"
#include "cc/artifact/manifest_scanner.h"
#include "cc/artifact/specs_for_test.h"
#include "cc/base/hex.h"
#include "cc/testing/mutate.h"
#include "cc/testing/seed.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace coldsnap {
namespace {

using testing::HasSubstr;

// One of everything: two large extents, three small ones, an alias, an empty tensor, a strided one, F4.
std::vector<TensorSpec> Specs(const std::string& third_name) {
  TensorSpec strided = Whole("s", "F32", {4, 8}, kBase + 4 * kMiB);
  strided.strides = {1, 4};
  strided.attrs = {"persistent=1", "requires_grad=0"};
  TensorSpec alias = Whole("z.alias", "BF16", {64, 1024}, kBase);
  alias.object = 12345;
  return {Whole("a", "BF16", {64, 1024}, kBase),
          Raw("b", 65537, kBase + kMiB),
          Whole(third_name, "F4", {3, 5}, kBase + 2 * kMiB),
          Whole("d", "F64", {}, kBase + 3 * kMiB),
          Whole("e", "I64", {0, 4}, 0),
          strided,
          alias};
}

std::string GoodText(const std::string& third_name) {
  return WriteManifest(
      MustMake(MustPlan(Specs(third_name)), R"({"model":"m"})", R"({"scale":"f64:3ff0000000000000"})"));
}

// Escapes make it go through the parser.
const std::string& Good() {
  static const std::string text = GoodText("c\"\n\xC3\xA9");
  return text;
}
// Goes the short way, by ScanManifest.
const std::string& Plain() {
  static const std::string text = GoodText("c\xC3\xA9");
  return text;
}

// What ParseManifest says after the first `from` of the good text has become `to`. Of the plain one it refuses it too.
std::string After(std::string_view from, std::string_view to) {
  const std::string plain = RefusalAfter(from, to, Plain(), "manifest.json", ParseManifest);
  EXPECT_THAT(plain, testing::StartsWith("manifest.json: "));
  return RefusalAfter(from, to, Good(), "manifest.json", ParseManifest);
}

TEST(HostileManifestTest, TheGoodTextsAreGood) {
  for (const std::string& text : {Good(), Plain()}) {
    const auto result = ParseManifest(text);
    ASSERT_TRUE(result.ok()) << result.status().message() << "\n" << text;
    EXPECT_EQ(WriteManifest(*result), text);
  }
  EXPECT_FALSE(ScanManifest(Good()));
  EXPECT_TRUE(ScanManifest(Plain()));
}

TEST(HostileManifestTest, Syntax) {
  EXPECT_THAT(After("{\"blob", "{ \"blob"), HasSubstr(R"(not canonical at byte 1: " \"blob)"));
  EXPECT_THAT(After("[[],", "[[] ,"), HasSubstr("not canonical at byte"));
  EXPECT_THAT(After("\"format\":1", "\"format\":01"), HasSubstr("at byte"));
  EXPECT_THAT(After("\"format\":1", "\"format\":1.0"), HasSubstr("format is a number that is no integer"));
  EXPECT_THAT(After("\"format\":1", "\"format\":1e0"), HasSubstr("no integer"));
  EXPECT_THAT(After("\"format\":1", "\"format\":-1"), HasSubstr("the negative number -1"));
  EXPECT_THAT(After("\"format\":1", "\"format\":1,\"format\":1"), HasSubstr("format stands twice"));
  EXPECT_THAT(After("\"dtypes\":", "\"dtypes\":[],\"dtypes\":"), HasSubstr("tensors.dtypes stands twice"));
  EXPECT_THAT(After("\"model\":\"m\"", "\"model\":\"m\",\"model\":\"m\""),
              HasSubstr(R"(identity: JSON at "$.model": the key stands twice)"));
  EXPECT_THAT(After("\"model\":\"m\"", "\"n\":1,\"model\":\"m\""), HasSubstr("identity is not canonical JSON"));
  EXPECT_THAT(After("\"model\":\"m\"", "\"model\": \"m\""), HasSubstr("identity is not canonical JSON"));
  EXPECT_THAT(After("\"model\":\"m\"", "\"model\":[[[[[[[[]]]]]]]]"), HasSubstr("nested deeper than 8"));
  EXPECT_THAT(After("\"a\",\"b\"", "\"\\u0061\",\"b\""), HasSubstr("not canonical at byte"));
  EXPECT_THAT(After("\"a\",\"b\"", "\"\\ud800\",\"b\""), HasSubstr("at byte"));
  EXPECT_THAT(After("\"a\",\"b\"", "\"\\udc00\",\"b\""), HasSubstr("not UTF-8"));
  EXPECT_THAT(After("\"a\",\"b\"", "\"\xFF\",\"b\""), HasSubstr("tensors[0] \"?\": the name is not UTF-8 from byte 0"));
  EXPECT_THAT(After("\"a\",\"b\"", "\"\\u0000\",\"b\""), HasSubstr("NUL"));
}

TEST(HostileManifestTest, TrailingBytes) {
  for (const std::string& tail :
       {std::string(" "), std::string("\n"), std::string("{}"), std::string("\0", 1), std::string("\0x", 2)}) {
    EXPECT_FALSE(ParseManifest(Good() + tail).ok());
    EXPECT_FALSE(ScanManifest(Plain() + tail));
  }
  EXPECT_FALSE(ParseManifest("\xEF\xBB\xBF" + Good()).ok());
}

TEST(HostileManifestTest, TruncatedAtEveryByte) {
  for (size_t size = 0; size < Good().size(); ++size) {
    EXPECT_FALSE(ParseManifest(std::string_view(Good()).substr(0, size)).ok()) << "cut at " << size;
  }
  for (size_t size = 0; size < Plain().size(); ++size) {
    EXPECT_FALSE(ScanManifest(std::string_view(Plain()).substr(0, size))) << "cut at " << size;
  }
}

TEST(HostileManifestTest, DeepNesting) {
  EXPECT_THAT(After("\"format\":1", "\"format\":" + std::string(1'000'000, '[')), HasSubstr("format is an array"));
  EXPECT_THAT(After("\"format\":1", "\"formax\":" + std::string(1'000'000, '[')), HasSubstr("nested deeper than 8"));
  EXPECT_FALSE(ParseManifest(std::string(1'000'000, '[')).ok());
  EXPECT_FALSE(ParseManifest(std::string(1'000'000, '{')).ok());
}

TEST(HostileManifestTest, Versions) {
  EXPECT_THAT(After("\"format\":1", "\"format\":2"), HasSubstr("format is 2; this version reads format 1"));
  EXPECT_THAT(After("\"required\":[]", "\"required\":[\"lossless\"]"),
              HasSubstr(R"(requires the feature "lossless", which this version)"));
  // The feature is what a newer writer's reader has to be told about, not the column that came with it.
  std::string newer = Good();
  newer.replace(newer.find("\"required\":[]"), 13, "\"required\":[\"lossless\"]");
  newer.replace(newer.find("\"file_offset\""), 0, "\"encoding\":[\"zstd\",{\"a\":[1]}],");
  EXPECT_THAT(ParseManifest(newer).status().message(), HasSubstr("requires the feature \"lossless\""));
  EXPECT_THAT(After("\"required\":[]", "\"required\":[7]"), HasSubstr("required is the integer 7"));
  EXPECT_THAT(After("\"required\":[]", "\"required\":{}"), HasSubstr("required is an object"));
}

TEST(HostileManifestTest, Fields) {
  EXPECT_THAT(After("\"file_offset\"", "\"encoding\":[],\"file_offset\""),
              HasSubstr(R"(the field "extents.encoding" is none of format 1)"));
  EXPECT_THAT(After("\"format\":1", "\"format\":1,\"fresh\":{\"a\":[1.5]}"),
              HasSubstr(R"(the field "fresh" is none of format 1)"));
  EXPECT_THAT(After("\"required\":[],", ""), HasSubstr("required is missing"));
  EXPECT_THAT(After("\"format\":1,", ""), HasSubstr("format is missing"));
  EXPECT_THAT(After("\"data_start\":65536,", ""), HasSubstr("data_start is missing"));
  EXPECT_THAT(After("\"roles\":[\"\",\"\",\"\",\"\",\"\",\"\",\"\"],", ""), HasSubstr("tensors.roles is missing"));
  EXPECT_THAT(After("\"roles\":[\"\",", "\"roles\":["),
              HasSubstr("tensors.roles has 6 elements where another column of tensors has 7"));
  EXPECT_THAT(After("\"crc32\":[", "\"crc32\":[\"00000000\","),
              HasSubstr("has 5 elements where another column of extents has 6"));
  EXPECT_THAT(After("\"format\":1", "\"format\":\"1\""), HasSubstr(R"(format is the string "1", which it can't be)"));
  EXPECT_THAT(After("\"data_start\":65536", "\"data_start\":null"), HasSubstr("data_start is null"));
  EXPECT_THAT(After("\"data_start\":65536", "\"data_start\":true"), HasSubstr("data_start is true"));
  EXPECT_THAT(After("\"scalars\":{\"scale\":\"f64:3ff0000000000000\"}", "\"scalars\":[]"),
              HasSubstr("scalars is an array"));
  EXPECT_THAT(After("f64:3ff0000000000000\"", "\",\"x\":1.5"), HasSubstr("scalars: JSON at \"$.x\": a number"));
  EXPECT_THAT(After("\"extents\":{", "\"extents\":[],\"x\":{"), HasSubstr("extents is an array"));
  EXPECT_THAT(After("\"nbytes\":[", "\"nbytes\":7,\"x\":["), HasSubstr("extents.nbytes is the integer 7"));
  EXPECT_THAT(After("\"nbytes\":[", "\"nbytes\":[[],"), HasSubstr("extents.nbytes[0] is an array"));
  EXPECT_THAT(After("\"shapes\":[[64,1024]", "\"shapes\":[[64,\"1024\"]"),
              HasSubstr("tensors.shapes[0] is the string"));
  EXPECT_THAT(After("\"shapes\":[[64,1024]", "\"shapes\":[64"), HasSubstr("tensors.shapes[0] is the integer 64"));
  EXPECT_THAT(After("\"shapes\":[[64,1024]", "\"shapes\":[[64,[1024]]"), HasSubstr("is an array"));
  EXPECT_THAT(After("\"shapes\":[[64,1024]", "\"shapes\":[[64,null]"), HasSubstr("is null"));
  EXPECT_THAT(After("\"objects\":[0,", "\"objects\":[null,"), HasSubstr("tensors.objects[0] is null"));
  EXPECT_THAT(After("\"names\":[\"a\"", "\"names\":[0"), HasSubstr("tensors.names[0] is the integer 0"));
  EXPECT_THAT(After("\"names\":[\"a\"", "\"names\":\"a\",\"x\":[\"a\""), HasSubstr("tensors.names is the string"));
}

TEST(HostileManifestTest, Digests) {
  EXPECT_THAT(After("\"crc32\":[\"00000000\"", "\"crc32\":[\"0000000\""), HasSubstr("not 8 lower-case hex digits"));
  EXPECT_THAT(After("\"crc32\":[\"00000000\"", "\"crc32\":[\"0000000G\""),
              HasSubstr("extents.crc32[0] is \"0000000G\", not 8"));
  EXPECT_THAT(After("\"sha256t\":[\"00", "\"sha256t\":[\"0"), HasSubstr("not 64 lower-case hex digits"));
  EXPECT_THAT(After("9e3779b1", "9E3779B1"), HasSubstr("not 8 lower-case hex digits"));
  EXPECT_THAT(After("9e3779b1", "9e3779b2"), HasSubstr("shard_root is "));
  EXPECT_THAT(After("\"leaves_sha256\":\"0", "\"leaves_sha256\":\"1"), HasSubstr("shard_root is "));
  for (const std::string name : {"header_sha256", "layout_digest", "shard_root"}) {
    for (std::string text : {Good(), Plain()}) {
      char& digit = text[text.find("\"" + name + "\":\"") + name.size() + 4];
      digit = digit == '0' ? '1' : '0';
      EXPECT_THAT(ParseManifest(text).status().message(), HasSubstr(name + " is "));
    }
  }
  EXPECT_THAT(After("3ff0000000000000", "4ff0000000000000"), HasSubstr("layout_digest is "));
}

TEST(HostileManifestTest, Numbers) {
  const std::string first = "\"file_offset\":[65536,";
  EXPECT_THAT(After(first, "\"file_offset\":[65537,"),
              HasSubstr("extents.file_offset[0] is 65537 but the sizes before it put it at 65536"));
  EXPECT_THAT(After(first, "\"file_offset\":[9007199254740992,"), HasSubstr("past 2^53-1"));
  EXPECT_THAT(After(first, "\"file_offset\":[18446744073709551615,"), HasSubstr("past 2^53-1"));
  EXPECT_THAT(After(first, "\"file_offset\":[18446744073709551616,"), HasSubstr("no integer of 0..2^53-1"));
  EXPECT_THAT(After(first, "\"file_offset\":[" + std::string(100'000, '9') + ","), HasSubstr("manifest.json: at byte"));
  EXPECT_THAT(After("\"nbytes\":[131072,", "\"nbytes\":[9007199254740991,"), HasSubstr("pass 2^53-1 bytes"));
  EXPECT_THAT(After("\"nbytes\":[131072,65537,", "\"nbytes\":[131072,0,"), HasSubstr("outside extent 1 of 0 bytes"));
  EXPECT_THAT(After("\"nbytes\":[131072,65537,", "\"nbytes\":[131072,65538,"), HasSubstr("is "));
  EXPECT_THAT(After("\"blob_bytes\":", "\"blob_bytes\":1"), HasSubstr("blob_bytes is 1"));
  EXPECT_THAT(After("\"data_start\":65536", "\"data_start\":131072"),
              HasSubstr("data_start is 131072 but the header takes 65536"));
  EXPECT_THAT(After("\"extent\":[0,1,", "\"extent\":[0,7,"),
              HasSubstr("tensors[1] \"b\": extent is 7 but there are 5"));
  EXPECT_THAT(After("\"extent\":[0,1,", "\"extent\":[0,4294967296,"), HasSubstr("past 4294967295"));
  EXPECT_THAT(After("\"extent\":[0,1,", "\"extent\":[0,null,"),
              HasSubstr("extent is null but the tensor has 65537 bytes"));
  EXPECT_THAT(After("\"extent\":[0,1,", "\"extent\":[0,0,"), HasSubstr("no tensor refers to it"));
  EXPECT_THAT(After("\"extent\":[0,1,", "\"extent\":[1,0,"), HasSubstr("reach outside extent 1"));
  EXPECT_THAT(After("\"offset\":[0,", "\"offset\":[1,"),
              HasSubstr("131072 bytes at offset 1 reach outside extent 0 of 131072 bytes"));
  EXPECT_THAT(After("\"offset\":[0,0,0,0,0", "\"offset\":[0,0,0,0,1"),
              HasSubstr("offset is 1 but the tensor has no bytes"));
  EXPECT_THAT(After("\"offset\":[0,", "\"offset\":[9007199254740991,"), HasSubstr("reach outside extent 0"));
  EXPECT_THAT(After("\"shapes\":[[64,1024]", "\"shapes\":[[9007199254740991,9007199254740991]"),
              HasSubstr("reach past 2^53-1 bytes"));
  EXPECT_THAT(After("\"shapes\":[[64,1024]", "\"shapes\":[[64,1025]"), HasSubstr("reach outside extent 0"));
  EXPECT_THAT(After("\"shapes\":[[64,1024]", "\"shapes\":[[64]"), HasSubstr("1 dimensions but 2 strides"));
}

TEST(HostileManifestTest, Tensors) {
  EXPECT_THAT(After("\"names\":[\"a\",\"b\"", "\"names\":[\"b\",\"a\""),
              HasSubstr("tensors[1] \"a\": the name doesn't sort after \"b\""));
  EXPECT_THAT(After("\"names\":[\"a\",\"b\"", "\"names\":[\"b\",\"b\""), HasSubstr("doesn't sort after"));
  EXPECT_THAT(After("\"names\":[\"a\"", "\"names\":[\"\""), HasSubstr("the name is empty"));
  EXPECT_THAT(After("\"names\":[\"a\"", "\"names\":[\"" + std::string(4097, 'a') + "\""),
              HasSubstr("the name has 4097 bytes"));
  EXPECT_THAT(After("\"dtypes\":[\"BF16\"", "\"dtypes\":[\"bf16\""), HasSubstr("dtype \"bf16\" is none of format 1"));
  EXPECT_THAT(After("\"objects\":[0,1,", "\"objects\":[1,0,"), HasSubstr("object is 1 where the next new one is 0"));
  EXPECT_THAT(After("\"objects\":[0,1,", "\"objects\":[0,0,"),
              HasSubstr("object 0 differs from \"a\", the same object"));
  EXPECT_THAT(After("[\"persistent=1\",\"requires_grad=0\"]", "[\"requires_grad=0\",\"persistent=1\"]"),
              HasSubstr("attrs are not sorted"));
  EXPECT_THAT(After("\"persistent=1\"", "\"persistent\""), HasSubstr("not key=value"));
  EXPECT_THAT(After("\"roles\":[\"\"", "\"roles\":[\"p\""), HasSubstr("layout_digest"));
}

// b's extent and a's changed places: every number is right by itself.
TEST(HostileManifestTest, ExtentsOutOfOrder) {
  Layout layout = MustPlan({Raw("a", 65536, kBase), Raw("b", 65536, kBase + kMiB)});
  std::swap(layout.tensors[0].extent, layout.tensors[1].extent);
  const std::string message = ParseManifest(WriteManifest(MustMake(layout))).status().message();
  EXPECT_THAT(message,
              HasSubstr(R"(extents[1] with "a" stands after extents[0] with "b"; they go by their smallest names)"));
}

// The short way looks for the columns by their keys. Others of the same name lead it astray, and it takes nothing then;
// the manifest is as good as any.
TEST(HostileManifestTest, KeysOfColumnsInOtherObjects) {
  for (const std::string_view other :
       {R"({"a":{"crc32":[],"file_offset":[]},"format":1})", R"({"crc32":[1]})",
        R"({"tensors":{"attrs":[],"dtypes":[]}})", R"({"a":1,"tensors":{"attrs":[1]}})"}) {
    const std::string identity = WriteManifest(MustMake(MustPlan(Specs("c")), other, "{}"));
    const std::string scalars = WriteManifest(MustMake(MustPlan(Specs("c")), "{}", other));
    Manifest extended = MustMake(MustPlan(Specs("c")));
    extended.extensions = other;
    for (const std::string& text : {identity, scalars, WriteManifest(extended)}) {
      const auto result = ParseManifest(text);
      ASSERT_TRUE(result.ok()) << result.status().message() << "\n" << text;
      EXPECT_EQ(WriteManifest(*result), text);
    }
  }
}

// Colons are what it looks for.
TEST(HostileManifestTest, NamesFullOfColons) {
  const std::string text = GoodText(":names:[:,:dtypes::[\xC3\xA9:");
  EXPECT_TRUE(ScanManifest(text));
  EXPECT_TRUE(ParseManifest(text).ok());
}

// Whatever is changed: no crash, and what is accepted means what it did, but for the identity, which no digest inside
// the manifest covers (artifact.json has it again, and the whole manifest's digest). The short way takes nothing but
// what is written.
TEST(HostileManifestTest, RandomMutationsNeverChangeTheMeaning) {
  std::mt19937 random(static_cast<uint32_t>(TestSeed(20240607)));
  for (const std::string& good : {Good(), Plain()}) {
    const std::string root(ToHex(ParseManifest(good)->shard_root));
    int accepted = 0;
    for (int round = 0; round < 20'000; ++round) {
      const std::string text = Mutated(good, random);
      const auto scanned = ScanManifest(text);
      ASSERT_TRUE(!scanned || WriteManifest(scanned->manifest) == text) << text;
      const auto result = ParseManifest(text);
      if (!result.ok()) {
        ASSERT_EQ(result.status().code(), Code::kFormatInvalid) << text;
        continue;
      }
      ASSERT_EQ(WriteManifest(*result), text);
      ASSERT_EQ(ToHex(result->shard_root), root) << text;
      ++accepted;
    }
    EXPECT_LT(accepted, 500);  // swaps of equal bytes, and the identity
  }
}

}  // namespace
}  // namespace coldsnap
