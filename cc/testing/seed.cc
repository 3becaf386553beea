#include "cc/testing/seed.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "cc/base/check.h"

namespace coldsnap {

uint64_t TestSeed(uint64_t usual) {
  uint64_t seed = usual;
  if (const char* const given = std::getenv("COLDSNAP_TEST_SEED")) {
    const std::string_view text(given);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
    COLDSNAP_CHECK(error == std::errc() && end == text.data() + text.size());
  }
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

}  // namespace coldsnap
