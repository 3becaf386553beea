// A folder for one test, gone with it; under TEST_TMPDIR, else TMPDIR, else /tmp.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "cc/base/check.h"

namespace coldsnap {

class TempDir {
 public:
  TempDir() : TempDir(Base()) {}
  // Under a folder of the test's choice, /dev/shm say.
  explicit TempDir(const std::string& base) : path_(base + "/coldsnap-test-XXXXXX") {
    COLDSNAP_CHECK(::mkdtemp(path_.data()) != nullptr);
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string Write(const std::string& name, const std::string& bytes) const {
    const std::string path = path_ + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string Read(const std::string& name) const {
    std::ifstream file(path_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  static std::string Base() {
    for (const char* name : {"TEST_TMPDIR", "TMPDIR"}) {
      if (const char* value = std::getenv(name)) return value;
    }
    return "/tmp";
  }
  std::string path_;
};

}  // namespace coldsnap
