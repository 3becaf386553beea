#include "cc/artifact/layout.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cc/artifact/specs_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace coldsnap {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string Refusal(std::vector<TensorSpec> specs) { return PlanLayout(std::move(specs)).status().message(); }

// Entries of the header in order: "name dtype [shape] begin-end".
std::string Entries(const Layout& layout) {
  std::string json = JsonOf(layout.header);
  json = json.substr(json.find('}') + 1);
  return json.substr(0, json.size() - 1);
}

TEST(LayoutTest, NothingIsAHeaderAndNoData) {
  const Layout layout = MustPlan({});
  EXPECT_EQ(layout.data_start, 65536U);
  EXPECT_EQ(layout.blob_bytes, 65536U);
  EXPECT_EQ(JsonOf(layout.header), R"({"__metadata__":{"format":"pt","coldsnap.format":"1"}})");
  EXPECT_EQ(layout.header.substr(0, 8), std::string("\xF8\xFF\0\0\0\0\0\0", 8));  // 65528, little-endian
}

// The sizes at the edges: the large ones first, by name, then the small ones, by name.
TEST(LayoutTest, OrdersLargeBeforeSmallByName) {
  std::vector<TensorSpec> specs;
  for (const uint64_t nbytes : {0, 1, 511, 512, 513, 65535, 65536, 65537, 131072}) {
    specs.push_back(Raw(StrCat("t", nbytes), nbytes, kBase + nbytes * kMiB));
  }
  const Layout layout = MustPlan(specs);
  EXPECT_EQ(Entries(layout), R"(,"t0":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})"
                             R"(,"t131072":{"dtype":"U8","shape":[131072],"data_offsets":[0,131072]})"
                             R"(,"t65536":{"dtype":"U8","shape":[65536],"data_offsets":[131072,196608]})"
                             R"(,"t65537":{"dtype":"U8","shape":[65537],"data_offsets":[196608,262145]})"
                             R"(,"__pad__.0":{"dtype":"U8","shape":[65535],"data_offsets":[262145,327680]})"
                             R"(,"t1":{"dtype":"U8","shape":[1],"data_offsets":[327680,327681]})"
                             R"(,"__pad__.1":{"dtype":"U8","shape":[511],"data_offsets":[327681,328192]})"
                             R"(,"t511":{"dtype":"U8","shape":[511],"data_offsets":[328192,328703]})"
                             R"(,"__pad__.2":{"dtype":"U8","shape":[1],"data_offsets":[328703,328704]})"
                             R"(,"t512":{"dtype":"U8","shape":[512],"data_offsets":[328704,329216]})"
                             R"(,"t513":{"dtype":"U8","shape":[513],"data_offsets":[329216,329729]})"
                             R"(,"__pad__.3":{"dtype":"U8","shape":[511],"data_offsets":[329729,330240]})"
                             R"(,"t65535":{"dtype":"U8","shape":[65535],"data_offsets":[330240,395775]})"
                             R"(,"__pad__.4":{"dtype":"U8","shape":[62977],"data_offsets":[395775,458752]})");
  EXPECT_EQ(layout.blob_bytes, 65536U + 458752);
  EXPECT_EQ(layout.sources[0].nbytes, 131072U);
  EXPECT_EQ(layout.sources[0].address, kBase + 131072 * kMiB);
  EXPECT_EQ(layout.file_offsets[0], 65536U);
  EXPECT_EQ(layout.uncovered_bytes, 0U);
}

TEST(LayoutTest, AliasesShareAnExtentAndTheSmallestNameHasTheEntry) {
  TensorSpec tied = Whole("lm_head", "BF16", {1000, 64}, kBase);
  TensorSpec embed = Whole("embed", "BF16", {1000, 64}, kBase);
  const Layout layout = MustPlan({tied, embed});
  EXPECT_EQ(layout.sources.size(), 1U);
  EXPECT_THAT(Entries(layout), HasSubstr(R"(,"embed":{"dtype":"BF16","shape":[1000,64])"));
  EXPECT_THAT(Entries(layout), Not(HasSubstr("lm_head")));
  EXPECT_EQ(layout.tensors[0].object, 0U);
  EXPECT_EQ(layout.tensors[1].object, 0U);  // the specs say the same object
  tied.object = 77;
  EXPECT_EQ(MustPlan({tied, embed}).tensors[1].object, 1U);
}

// The smallest name that covers the extent exactly, not the smallest name of all.
TEST(LayoutTest, APartialTensorGivesNoName) {
  TensorSpec part = Whole("a.part", "F32", {10}, kBase);
  part.storage_nbytes = 400;
  TensorSpec whole = Whole("b.whole", "F32", {100}, kBase);
  whole.object = 1;
  EXPECT_THAT(Entries(MustPlan({part, whole})), HasSubstr(R"("b.whole":{"dtype":"F32","shape":[100])"));
  EXPECT_THAT(Entries(MustPlan({part})), HasSubstr(R"("__storage__.0":{"dtype":"U8","shape":[400])"));
  EXPECT_EQ(MustPlan({part}).uncovered_bytes, 360U);
}

TEST(LayoutTest, OverlappingStoragesMergeAndTouchingOnesDoNot) {
  const TensorSpec a = Raw("a", 1000, kBase);
  const TensorSpec b = Raw("b", 1000, kBase + 999);
  const TensorSpec c = Raw("c", 10, kBase + 1999);  // starts where b ends
  const Layout layout = MustPlan({c, b, a});
  ASSERT_EQ(layout.sources.size(), 2U);
  EXPECT_EQ(layout.sources[0].nbytes, 1999U);
  EXPECT_EQ(layout.sources[1].address, kBase + 1999);
  EXPECT_EQ(layout.tensors[1].offset, 999U);
  EXPECT_THAT(Entries(layout), HasSubstr("__storage__.0"));
  EXPECT_EQ(layout.uncovered_bytes, 0U);
}

TEST(LayoutTest, AStorageInsideAnotherMerges) {
  const Layout layout =
      MustPlan({Raw("outer", 5000, kBase), Raw("inner", 10, kBase + 100), Raw("last", 10, kBase + 4990)});
  ASSERT_EQ(layout.sources.size(), 1U);
  EXPECT_EQ(layout.sources[0].nbytes, 5000U);
  EXPECT_THAT(Entries(layout), HasSubstr(R"("outer":)"));
}

TEST(LayoutTest, AStridedTensorIsAStorage) {
  TensorSpec transposed = Whole("w", "F32", {3, 5}, kBase);
  transposed.strides = {1, 3};
  EXPECT_THAT(Entries(MustPlan({transposed})), HasSubstr(R"(,"__storage__.0":{"dtype":"U8","shape":[60])"));
  TensorSpec broadcast = Whole("b", "F32", {1}, kBase);
  broadcast.shape = {7};
  broadcast.strides = {0};
  EXPECT_THAT(Entries(MustPlan({broadcast})), HasSubstr("__storage__.0"));
  EXPECT_EQ(MustPlan({broadcast}).uncovered_bytes, 0U);
}

TEST(LayoutTest, StridesOfSizeOneMeanNothing) {
  TensorSpec spec = Whole("w", "F32", {1, 5, 1}, kBase);
  spec.strides = {999, 1, -7};
  const Layout layout = MustPlan({spec});
  EXPECT_THAT(Entries(layout), HasSubstr(R"(,"w":{"dtype":"F32","shape":[1,5,1])"));
  EXPECT_THAT(layout.tensors[0].strides, ElementsAre(999, 1, 0));
}

TEST(LayoutTest, F4DoublesTheLastDimensionInTheBlobOnly) {
  const Layout layout = MustPlan({Whole("w", "F4", {4, 8}, kBase)});
  EXPECT_THAT(Entries(layout), HasSubstr(R"(,"w":{"dtype":"F4","shape":[4,16],"data_offsets":[0,32]})"));
  EXPECT_THAT(layout.tensors[0].shape, ElementsAre(4, 8));
  EXPECT_THAT(Entries(MustPlan({Whole("w", "F4", {}, kBase)})),
              HasSubstr(R"(,"__storage__.0":{"dtype":"U8","shape":[1])"));
}

TEST(LayoutTest, TypesThatSafetensorsLacksAreStorages) {
  for (const std::string dtype : {"C128", "F6_E2M3", "F6_E3M2"}) {
    EXPECT_THAT(Entries(MustPlan({Whole("w", dtype, {3}, kBase)})), HasSubstr("__storage__.0")) << dtype;
  }
}

TEST(LayoutTest, NamesThatBeginWithTwoUnderscoresAreStorages) {
  const Layout layout = MustPlan({Raw("__metadata__", 5, kBase), Raw("__pad__.0", 0, 0), Raw("_ok", 5, kBase + kMiB)});
  EXPECT_EQ(Entries(layout), R"(,"__storage__.0":{"dtype":"U8","shape":[5],"data_offsets":[0,5]})"
                             R"(,"__pad__.0":{"dtype":"U8","shape":[507],"data_offsets":[5,512]})"
                             R"(,"_ok":{"dtype":"U8","shape":[5],"data_offsets":[512,517]})"
                             R"(,"__pad__.1":{"dtype":"U8","shape":[65019],"data_offsets":[517,65536]})");
}

TEST(LayoutTest, ZeroDimensionsHoldOneElement) {
  EXPECT_THAT(Entries(MustPlan({Whole("s", "F64", {}, kBase)})),
              HasSubstr(R"(,"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]})"));
}

TEST(LayoutTest, EmptyTensors) {
  TensorSpec view = Raw("view", 10, kBase);  // empty, of a storage that has bytes
  view.shape = {0};
  view.address = kBase + 10;
  TensorSpec huge = Raw("huge", 0, 0);  // readers of the header would overflow
  huge.shape = {kMaxInteger, kMaxInteger, 0};
  huge.strides = {0, 0, 1};
  std::vector<TensorSpec> specs = {view, huge, Whole("c", "C128", {0}, 0), Whole("e", "F4", {0, 3}, 0)};
  for (size_t i = 0; i < specs.size(); ++i) specs[i].object = i;
  const Layout layout = MustPlan(specs);
  EXPECT_EQ(Entries(layout), R"(,"e":{"dtype":"F4","shape":[0,6],"data_offsets":[0,0]})"
                             R"(,"__storage__.0":{"dtype":"U8","shape":[10],"data_offsets":[0,10]})"
                             R"(,"__pad__.0":{"dtype":"U8","shape":[65526],"data_offsets":[10,65536]})");
  EXPECT_EQ(layout.tensors[3].extent, 0U);
  EXPECT_EQ(layout.tensors[3].offset, 0U);
  EXPECT_EQ(layout.tensors[0].extent, std::nullopt);
  EXPECT_EQ(layout.uncovered_bytes, 10U);
}

TEST(LayoutTest, NamesSortByUtf8BytesAndAreEscaped) {
  const std::vector<std::string> ordered = {"B", "a", "a\"\\\n", "a.b", "\xC3\xA9", "\xEF\xBF\xBF", "\xF0\x9F\x98\x80"};
  std::vector<TensorSpec> specs;
  for (size_t i = ordered.size(); i-- > 0;) specs.push_back(Raw(ordered[i], 8, kBase + i * kMiB));
  const Layout layout = MustPlan(specs);
  for (size_t i = 0; i < ordered.size(); ++i) {
    EXPECT_EQ(layout.tensors[i].name, ordered[i]);
    EXPECT_EQ(layout.tensors[i].extent, i);
  }
  EXPECT_THAT(Entries(layout), HasSubstr(R"(,"a\"\\\n":{)"));
  EXPECT_THAT(Entries(layout), HasSubstr(",\"\xC3\xA9\":{"));
}

// 20 small tensors and a large one whose header takes two times 65536 bytes: names of 4000 bytes.
std::vector<TensorSpec> LongNames() {
  std::vector<TensorSpec> specs = {Raw("big", 65537, kBase)};
  for (int i = 0; i < 20; ++i)
    specs.push_back(Raw(std::string(4000, 'n') + std::to_string(i), 100, kBase + (i + 1) * kMiB));
  return specs;
}

TEST(LayoutTest, AHeaderPastTheLimitNamesGroupsInstead) {
  EXPECT_EQ(MustPlan(LongNames(), 131064).data_start, 131072U);
  const Layout grouped = MustPlan(LongNames(), 131063);
  EXPECT_EQ(grouped.data_start, 65536U);
  EXPECT_EQ(Entries(grouped), R"(,"big":{"dtype":"U8","shape":[65537],"data_offsets":[0,65537]})"
                              R"(,"__pad__.0":{"dtype":"U8","shape":[65535],"data_offsets":[65537,131072]})"
                              R"(,"__group__.0":{"dtype":"U8","shape":[65536],"data_offsets":[131072,196608]})");
  EXPECT_EQ(grouped.tensors.size(), 21U);
}

TEST(LayoutTest, AHeaderPastTheLimitEvenSoIsRefused) {
  EXPECT_THAT(PlanLayout(LongNames(), 65527).status().message(),
              HasSubstr("21 tensors in 21 extents passes 65527 bytes even"));
}

TEST(LayoutTest, InputOrderAddressesAndObjectNumbersDoNotMatter) {
  const auto make = [](uint64_t base, uint64_t object_step) {
    std::vector<TensorSpec> specs;
    for (uint64_t i = 0; i < 300; ++i) {
      TensorSpec spec = Raw(StrCat("t", i * 7919 % 300), (i * 2654435761U) % 200000, base + (i * 37 % 300) * kMiB);
      spec.object = i * object_step;
      spec.attrs = {StrCat("b=", i), "a=1"};
      specs.push_back(spec);
      spec.name += ".alias";
      spec.attrs = {"a=1", "b=2"};
      specs.push_back(spec);
    }
    return specs;
  };
  const std::string expected = WriteManifest(MustMake(MustPlan(make(kBase, 1))));
  std::mt19937 random(20240607);
  for (int round = 0; round < 5; ++round) {
    auto specs = make(kBase * (round + 2), 1000003 + round);
    std::shuffle(specs.begin(), specs.end(), random);
    EXPECT_EQ(WriteManifest(MustMake(MustPlan(specs))), expected);
  }
}

TEST(LayoutTest, RefusesBadTensorsByName) {
  const auto changed = [](auto change) {
    TensorSpec spec = Whole("w", "F32", {2, 3}, kBase);
    change(spec);
    return Refusal({spec});
  };
  EXPECT_THAT(changed([](auto& t) { t.strides = {-3, 1}; }),
              HasSubstr(R"(tensor "w": strides[0] is -3; negative strides)"));
  EXPECT_THAT(changed([](auto& t) { t.dtype = "F128"; }),
              HasSubstr(R"(dtype "F128" is none of format 1; known: BF16, )"));
  EXPECT_THAT(changed([](auto& t) { t.strides = {1}; }), HasSubstr("2 dimensions but 1 strides"));
  EXPECT_THAT(changed([](auto& t) { t.shape.assign(65, 1), t.strides.assign(65, 1); }),
              HasSubstr("65 dimensions; at most 64"));
  EXPECT_THAT(changed([](auto& t) { t.shape = {kMaxInteger + 1, 0}; }),
              HasSubstr("shape[0] is 9007199254740992, past 2^53-1"));
  EXPECT_THAT(changed([](auto& t) { t.strides = {INT64_MAX, 1}; }), HasSubstr("strides[0] is 9223372036854775807"));
  EXPECT_THAT(changed([](auto& t) { t.shape = {kMaxInteger, kMaxInteger}; }), HasSubstr("reach past 2^53-1 bytes"));
  EXPECT_THAT(changed([](auto& t) { t.storage_nbytes = 23; }),
              HasSubstr("its 24 bytes at 1099511627776 reach outside its storage of 23"));
  EXPECT_THAT(changed([](auto& t) { t.address -= 4; }), HasSubstr("reach outside its storage"));
  EXPECT_THAT(changed([](auto& t) { t.address = UINT64_MAX; }), HasSubstr("reach outside its storage"));
  EXPECT_THAT(changed([](auto& t) { t.storage_nbytes = 0; }), HasSubstr("reach outside its storage of 0"));
  EXPECT_EQ(changed([](auto& t) { t.shape = {0, 3}, t.address = 0; }), "");
  EXPECT_THAT(changed([](auto& t) { t.storage_address = UINT64_MAX - 5; }), HasSubstr("passes the address space"));
  EXPECT_THAT(changed([](auto& t) { t.name.clear(); }), HasSubstr("the name is empty"));
  EXPECT_THAT(changed([](auto& t) { t.name = std::string("a\0b", 3); }), HasSubstr("NUL at byte 1"));
  EXPECT_THAT(changed([](auto& t) { t.name = "a\xFF"; }), HasSubstr("not UTF-8 from byte 1"));
  EXPECT_THAT(changed([](auto& t) { t.name.assign(4097, 'x'); }), HasSubstr("4097 bytes"));
  EXPECT_THAT(changed([](auto& t) { t.role = "\xFF"; }), HasSubstr("role"));
  EXPECT_THAT(changed([](auto& t) { t.attrs = {"novalue"}; }), HasSubstr(R"(attrs[0] is "novalue", not key=value)"));
  EXPECT_THAT(changed([](auto& t) { t.attrs = {"=v"}; }), HasSubstr("not key=value"));
  EXPECT_THAT(changed([](auto& t) { t.attrs = {"k=2", "k=1"}; }), HasSubstr(R"(the key "k" twice)"));
  EXPECT_THAT(changed([](auto& t) { t.attrs = {"k=2", "k!=1", "k=1"}; }), HasSubstr(R"(the key "k" twice)"));
  EXPECT_EQ(changed([](auto&) {}), "");
}

TEST(LayoutTest, RefusesTensorsThatContradictEachOther) {
  EXPECT_THAT(Refusal({Raw("w", 1, kBase), Raw("w", 2, kBase + kMiB)}),
              HasSubstr(R"(tensor "w": the name stands twice)"));
  TensorSpec other = Raw("x", 4, kBase);
  other.shape = {2, 2};
  other.strides = {2, 1};
  EXPECT_THAT(Refusal({Raw("w", 4, kBase), other}),
              HasSubstr(R"(tensor "x": it is said to be the same object as "w" but differs)"));
  const TensorSpec half = Raw("h", uint64_t{1} << 52, 0);
  TensorSpec half2 = Raw("i", uint64_t{1} << 52, uint64_t{1} << 53);
  EXPECT_THAT(Refusal({half, half2}), HasSubstr("pass 2^53-1 bytes"));
  // The data alone would fit; the header takes it past the limit.
  EXPECT_THAT(Refusal({Raw("w", (uint64_t{1} << 53) - kLeafBytes, 0)}),
              HasSubstr("the blob of 9007199254740992 bytes passes 2^53-1"));
}

}  // namespace
}  // namespace coldsnap
