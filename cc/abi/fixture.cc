#include "cc/abi/fixture.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "cc/hydrate/open_artifact.h"
#include "cc/testing/pattern.h"
#include "cc/testing/test_artifact.h"

struct fixture {
  explicit fixture(const std::vector<uint64_t>& sizes) : artifact(sizes), path(artifact.path()) {
    const coldsnap::OpenArtifact opened = artifact.Open();
    extents = opened.manifest().extents;
    expected.resize(extents.size());
    for (const coldsnap::TensorRecord& tensor : opened.manifest().tensors) {
      const uint64_t seed = std::stoull(tensor.name.substr(1)) + 1;
      expected[*tensor.extent] = coldsnap::PatternBytes(extents[*tensor.extent].nbytes, seed);
    }
  }
  coldsnap::TestArtifact artifact;
  std::string path;
  std::vector<coldsnap::Extent> extents;
  std::vector<std::vector<std::byte>> expected;
};

fixture* fixture_new(const uint64_t* sizes, size_t count) { return new fixture({sizes, sizes + count}); }
void fixture_delete(fixture* made) { delete made; }

const char* fixture_path(const fixture* made) { return made->path.c_str(); }

int fixture_holds(const fixture* made, uint64_t extent, const void* bytes) {
  const std::vector<std::byte>& expected = made->expected.at(extent);
  return std::memcmp(bytes, expected.data(), expected.size()) == 0 ? 1 : 0;
}

void fixture_flip_bit(const fixture* made, uint64_t extent, uint64_t at) {
  made->artifact.FlipBit(made->extents.at(extent).file_offset + at);
}

namespace {
thread_local bool fail_new = false;
}  // namespace

void fixture_fail_new(int fail) { fail_new = fail != 0; }

// In the place of the C++ library's own, for the whole program and the libraries that it loads.
void* operator new(size_t nbytes) {
  void* const found = fail_new ? nullptr : std::malloc(nbytes);
  if (found == nullptr) throw std::bad_alloc();
  return found;
}
void* operator new(size_t nbytes, const std::nothrow_t&) noexcept { return fail_new ? nullptr : std::malloc(nbytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
