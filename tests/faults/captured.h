// What the tests of killed captures capture, and what they find of it afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "cc/base/strcat.h"
#include "cc/capture/write_artifact.h"

namespace coldsnap {

// Tensors t0, t1, ... of bytes; they must outlive the request.
inline WriteRequest RequestOf(const std::vector<std::vector<std::byte>>& tensors, const std::string& path) {
  WriteRequest request{.path = path, .tensors = {}};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto address = reinterpret_cast<uint64_t>(tensors[i].data());
    request.tensors.push_back({.name = StrCat("t", i),
                               .dtype = "U8",
                               .shape = {tensors[i].size()},
                               .strides = {1},
                               .address = address,
                               .storage_address = address,
                               .storage_nbytes = tensors[i].size(),
                               .object = i,
                               .role = {},
                               .attrs = {}});
  }
  return request;
}

// Every file under a folder with its bytes; none where there is no folder.
inline std::map<std::string, std::string> FilesUnder(const std::string& folder) {
  std::map<std::string, std::string> files;
  if (!std::filesystem::exists(folder)) return files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().lexically_relative(folder)].assign(std::istreambuf_iterator<char>(file), {});
  }
  return files;
}

}  // namespace coldsnap
