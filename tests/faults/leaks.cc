#include "tests/faults/leaks.h"

#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>

#include "cc/base/strcat.h"
#include "cc/testing/fault.h"

namespace coldsnap {
namespace {

uint64_t Entries(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return static_cast<uint64_t>(std::distance(std::filesystem::begin(entries), std::filesystem::end(entries)));
}

}  // namespace

Resources ResourcesNow(const FakeCuda* fake) {
  return {.descriptors = Entries("/proc/self/fd"),
          .threads = Entries("/proc/self/task"),
          .mapped_bytes = MappedBytes(),
          .cuda_objects = fake == nullptr ? 0 : fake->LiveObjects()};
}

std::string Leaked(const Resources& before, const FakeCuda* fake) {
  Resources now = ResourcesNow(fake);
  for (int i = 0; i < 200 && now.threads != before.threads; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    now = ResourcesNow(fake);
  }
  if (now == before) return "";
  return StrCat("descriptors ", before.descriptors, " -> ", now.descriptors, ", threads ", before.threads, " -> ",
                now.threads, ", mapped bytes ", before.mapped_bytes, " -> ", now.mapped_bytes, ", CUDA objects ",
                before.cuda_objects, " -> ", now.cuda_objects);
}

}  // namespace coldsnap
