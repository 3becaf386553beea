#include "cc/digest/sha256.h"

#include <openssl/sha.h>

#include <algorithm>

#include "cc/base/check.h"

namespace coldsnap {

Sha256 Sha256Of(std::span<const std::byte> bytes) {
  Sha256 digest;
  SHA256_CTX context;
  COLDSNAP_CHECK(SHA256_Init(&context) == 1);
  COLDSNAP_CHECK(SHA256_Update(&context, bytes.data(), bytes.size()) == 1);
  COLDSNAP_CHECK(SHA256_Final(reinterpret_cast<unsigned char*>(digest.data()), &context) == 1);
  return digest;
}

Sha256 TreeRoot(std::span<const Sha256> leaves) { return Sha256Of(std::as_bytes(leaves)); }

std::vector<Sha256> LeafDigests(std::span<const std::byte> bytes) {
  std::vector<Sha256> leaves;
  leaves.reserve(LeavesOf(bytes.size()));
  for (size_t start = 0; start < bytes.size(); start += kLeafBytes) {
    leaves.push_back(Sha256Of(bytes.subspan(start, std::min<size_t>(kLeafBytes, bytes.size() - start))));
  }
  return leaves;
}

}  // namespace coldsnap
