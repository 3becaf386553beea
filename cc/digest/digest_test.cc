#include <cstring>
#include <string>
#include <vector>

#include "cc/base/hex.h"
#include "cc/digest/crc32.h"
#include "cc/digest/sha256.h"
#include "gtest/gtest.h"

namespace coldsnap {
namespace {

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string Pattern(size_t nbytes) {
  std::string out(nbytes, '\0');
  uint32_t state = 12345;
  for (char& c : out) {
    state = state * 1664525U + 1013904223U;
    c = static_cast<char>(state >> 24);
  }
  return out;
}

// The check values that the algorithms' own specifications publish.
TEST(DigestTest, KnownAnswers) {
  EXPECT_EQ(ToHex(Crc32(0, Bytes("123456789"))), "cbf43926");
  EXPECT_EQ(ToHex(Crc32(0, {})), "00000000");
  EXPECT_EQ(ToHex(Sha256Of(Bytes("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(ToHex(Sha256Of({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(DigestTest, TreeOfNothingIsTheDigestOfNothing) { EXPECT_EQ(TreeRoot({}), Sha256Of({})); }

TEST(DigestTest, TreeHashesTheLeafDigests) {
  const std::string data = Pattern(2 * kLeafBytes + 1);
  const auto bytes = Bytes(data);
  const std::vector<Sha256> leaves = LeafDigests(bytes);
  ASSERT_EQ(leaves.size(), 3U);
  EXPECT_EQ(leaves[0], Sha256Of(bytes.first(kLeafBytes)));
  EXPECT_EQ(leaves[2], Sha256Of(bytes.last(1)));
  std::string joined;
  for (const Sha256& leaf : leaves) joined.append(reinterpret_cast<const char*>(leaf.data()), leaf.size());
  EXPECT_EQ(TreeRoot(leaves), Sha256Of(Bytes(joined)));
}

TEST(DigestTest, CombineEqualsTheCrcOfTheWhole) {
  const std::string data = Pattern(200001);
  const auto bytes = Bytes(data);
  const uint32_t whole = Crc32(0, bytes);
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{511}, size_t{65536}, size_t{131071}, data.size()}) {
    const uint32_t first = Crc32(0, bytes.first(cut));
    EXPECT_EQ(Crc32Combine(first, Crc32(0, bytes.subspan(cut)), data.size() - cut), whole) << "cut at " << cut;
    EXPECT_EQ(Crc32(first, bytes.subspan(cut)), whole) << "continued at " << cut;
  }
}

// 2^33 zero bytes, by squaring: lengths beyond 32 bits must not wrap.
TEST(DigestTest, CombineTakesLengthsBeyond32Bits) {
  const std::string zeros(1 << 20, '\0');
  uint32_t crc = Crc32(0, Bytes(zeros));
  uint64_t nbytes = zeros.size();
  uint32_t serial = 0;
  for (int i = 0; i < 8192; ++i) serial = Crc32Combine(serial, crc, nbytes);
  for (int i = 0; i < 13; ++i) {
    crc = Crc32Combine(crc, crc, nbytes);
    nbytes *= 2;
  }
  EXPECT_EQ(nbytes, uint64_t{1} << 33);
  EXPECT_EQ(crc, serial);
}

}  // namespace
}  // namespace coldsnap
