// A folder that stands for the root of a system: tests write into it what the kernel would say in /proc and /sys.
#pragma once

#include <filesystem>
#include <string>

#include "cc/testing/temp_dir.h"

namespace coldsnap {

class FakeSystem {
 public:
  std::string root() const { return folder_.path(); }
  // `path` begins with a slash; its folders are made.
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root() + path).parent_path());
    folder_.Write(path.substr(1), text);
  }

 private:
  TempDir folder_;
};

}  // namespace coldsnap
