// cuFile's error numbers in plain words: cause and remedy. docs/gds.md shows the same table.
#pragma once

#include <span>
#include <string_view>

#include "cc/base/status.h"
#include "cc/gds/cufile_api.h"

namespace coldsnap {

// Numbers that mean the same to whoever has to repair it.
struct GdsErrorGroup {
  std::span<const int> numbers;
  std::string_view cause;
  std::string_view remedy;
};
std::span<const GdsErrorGroup> GdsErrorGroups();

// What the table says; a number that it does not have gets a sentence that says so.
const GdsErrorGroup& ExplainGdsError(int number);

// Ok for number 0, else `code` with number, cause and remedy. `doing` says what was being done, to what.
Status GdsStatus(cufile::Error error, std::string_view doing, Code code = Code::kRouteUnavailable);

}  // namespace coldsnap
