#include "cc/digest/sha256.h"

#include <openssl/evp.h>

#include <algorithm>

#include "cc/base/check.h"

namespace coldsnap {

Sha256 Sha256Of(std::span<const std::byte> bytes) {
  // Fetched once: an implicit fetch in every EVP_Digest call costs more than hashing a small extent (OpenSSL 3.0).
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  COLDSNAP_CHECK(algorithm != nullptr);
  Sha256 digest;
  unsigned int length = 0;
  COLDSNAP_CHECK(EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), &length,
                            algorithm, nullptr) == 1);
  COLDSNAP_CHECK(length == digest.size());
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
