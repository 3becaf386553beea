// Which faults are put in at which point, and how a flow has to end then.
#pragma once

#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/testing/fault.h"
#include "tests/faults/flows.h"

namespace coldsnap {

enum class Ending : uint8_t { kSuccess, kFailure, kEither };

struct FaultCase {
  Fault fault;  // on_call is the matrix's
  Ending ending = Ending::kFailure;
  std::string text;  // "EIO", "half"
};

// The faults of a point in a flow.
std::vector<FaultCase> FaultCasesOf(FaultPoint point, const Flow& flow);

// What is wrong with a failure of `flow` after that fault; empty when nothing is.
std::string WrongFailure(const Status& status, FaultPoint point, const Fault& fault, const Flow& flow);

}  // namespace coldsnap
