// Small damages to a text, as drives, people and attackers make them.
#pragma once

#include <cstddef>
#include <random>
#include <string>
#include <utility>

namespace coldsnap {

// `text`, which is not empty, with one change at a random place.
inline std::string Mutated(std::string text, std::mt19937& random) {
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  const size_t at = below(text.size());
  switch (below(6)) {
    case 0:
      text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
      break;
    case 1:
      text[at] = static_cast<char>(random());
      break;
    case 2:
      text.erase(at, 1 + below(8));
      break;
    case 3:
      text.insert(at, std::string(text, below(text.size()), 1 + below(40)));
      break;
    case 4:
      text.insert(at, 1, "[]{}\",:0\\"[below(9)]);
      break;
    default:
      std::swap(text[at], text[below(text.size())]);
  }
  return text;
}

}  // namespace coldsnap
