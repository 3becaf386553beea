#include "cc/sys/pseudo_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <memory>

#include "cc/base/units.h"

namespace coldsnap {
namespace {

constexpr size_t kMaxBytes = 16 * kMiB;  // mountinfo of a host with ten thousand mounts has a few

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

Result<std::string> ReadPseudoFile(const std::string& path) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "re"));
  if (file == nullptr) return Status::FromErrno(errno, StrCat("open ", path));
  std::string text;
  std::array<char, 4096> piece{};
  while (const size_t got = std::fread(piece.data(), 1, piece.size(), file.get())) {
    text.append(piece.data(), got);
    if (text.size() > kMaxBytes) return Status(Code::kIo, StrCat("read ", path, ": more than ", kMaxBytes, " bytes"));
  }
  if (std::ferror(file.get()) != 0) return Status::FromErrno(errno, StrCat("read ", path));
  return text;
}

std::vector<std::string_view> Split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> pieces;
  for (size_t begin = 0; (begin = text.find_first_not_of(separators, begin)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(separators, begin), text.size());
    pieces.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

std::optional<uint64_t> ParseCount(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace coldsnap
