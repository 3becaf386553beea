#include "cc/abi/sized.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace coldsnap::abi {
namespace {

// Three versions of one struct.
struct First {
  size_t struct_size;
  uint64_t one;
};
struct Second {
  size_t struct_size;
  uint64_t one;
  uint64_t two;
};
struct Third {
  size_t struct_size;
  uint64_t one;
  uint64_t two;
  uint64_t three;
};

TEST(SizedTest, WhatAnOlderCallerLacksIsZero) {
  struct {
    First theirs{.struct_size = sizeof(First), .one = 1};
    uint64_t behind = 77;  // not theirs
  } memory;
  const Result<Second> read = ReadSized(reinterpret_cast<const Second*>(&memory.theirs), "Second");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->struct_size, sizeof(First));
  EXPECT_EQ(read->one, 1u);
  EXPECT_EQ(read->two, 0u);
}

TEST(SizedTest, WhatANewerCallerSetsIsRefusedAndZeroIsNot) {
  Third theirs{.struct_size = sizeof(Third), .one = 1, .two = 2, .three = 0};
  const Result<Second> read = ReadSized(reinterpret_cast<const Second*>(&theirs), "Second");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->two, 2u);

  theirs.three = uint64_t{1} << 63;
  const Result<Second> refused = ReadSized(reinterpret_cast<const Second*>(&theirs), "Second");
  EXPECT_EQ(refused.status().code(), Code::kRequestInvalid);
  EXPECT_EQ(refused.status().message(), "read Second: byte 31 of 32 is set, and this library knows 24 bytes of it");
}

TEST(SizedTest, ASizeThatIsNoSizeofIsRefused) {
  for (const size_t size : {size_t{0}, size_t{7}, size_t{12}, size_t{25}, size_t{4104}, SIZE_MAX, SIZE_MAX - 7}) {
    const Second theirs{.struct_size = size, .one = 1, .two = 2};
    const Result<Second> read = ReadSized(&theirs, "Second");
    EXPECT_EQ(read.status().code(), Code::kRequestInvalid) << size;
    EXPECT_THAT(read.status().message(), testing::HasSubstr(StrCat("struct_size is ", size)));
  }
  EXPECT_EQ(ReadSized<Second>(nullptr, "Second").status().code(), Code::kRequestInvalid);
}

TEST(SizedTest, FillsAsMuchAsThereIs) {
  const Second ours{.struct_size = 5, .one = 1, .two = 2};
  struct {
    First theirs{.struct_size = sizeof(First), .one = 9};
    uint64_t behind = 77;
  } older;
  ASSERT_TRUE(WriteSized(ours, "Second", reinterpret_cast<Second*>(&older.theirs)).ok());
  EXPECT_EQ(older.theirs.struct_size, sizeof(First));  // the caller's word stays
  EXPECT_EQ(older.theirs.one, 1u);
  EXPECT_EQ(older.behind, 77u);

  Third newer{.struct_size = sizeof(Third), .one = 9, .two = 9, .three = 9};
  ASSERT_TRUE(WriteSized(ours, "Second", reinterpret_cast<Second*>(&newer)).ok());
  EXPECT_EQ(newer.two, 2u);
  EXPECT_EQ(newer.three, 0u);

  Second unset{};
  EXPECT_EQ(WriteSized(ours, "Second", &unset).code(), Code::kRequestInvalid);
  EXPECT_EQ(unset.one, 0u);
}

}  // namespace
}  // namespace coldsnap::abi
