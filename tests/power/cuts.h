// Going through the states that cuts of a history may leave, and programs to have histories of.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "tests/power/history.h"

namespace coldsnap {

// What to do in the folder.
using Writer = std::function<Status(const std::string& folder)>;

// `tests/power/captures OPERATION folder`, a program in Python. Exit code 3 is kExists.
Writer PythonWriter(const std::string& operation);

// What a writer did to an empty folder, in a process of its own, and what it left there.
struct Recorded {
  std::string why_not;  // empty if it could be run
  int exit_code = 0;
  History history;
  Tree left;
};
Recorded Record(const Writer& write);

std::vector<bool> AllOf(size_t count);

// `kept` is one state; false ends it.
using Seen = std::function<bool(const std::vector<bool>& kept)>;

// Every state of every cut with few changes pending; of the others those that lose one, all but one, and some. Of cuts
// after which `matters` is false only those that lose all or nothing. False if `seen` ended it.
bool EachState(const History& history, std::mt19937_64& random, const std::function<bool(size_t count)>& matters,
               const Seen& seen);

// A state of the cut after `count` changes, taken at random.
std::vector<bool> SomeState(const History& history, size_t count, std::mt19937_64& random);

// For messages: what a state lacks.
std::string LostOf(const History& history, const std::vector<bool>& kept);

// The history with one change, a sync, left out.
History Without(const History& history, size_t sync);

}  // namespace coldsnap
