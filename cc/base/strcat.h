// StrCat: one string out of pieces, for messages. Not for hot paths.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace coldsnap {

inline void AppendPiece(std::string& out, std::string_view piece) { out.append(piece); }
inline void AppendPiece(std::string& out, char piece) { out.push_back(piece); }
template <typename Number>
  requires std::integral<Number> || std::floating_point<Number>
void AppendPiece(std::string& out, Number piece) {
  out.append(std::to_string(piece));
}

template <typename... Pieces>
std::string StrCat(const Pieces&... pieces) {
  std::string out;
  (AppendPiece(out, pieces), ...);
  return out;
}

}  // namespace coldsnap
