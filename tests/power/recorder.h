// Writes down what the program does to one folder, by stand-ins for the calls of the C library that are put in between
// when a test is linked (as those of cc/testing/fault.h): the core's object files are the very ones that users get.
//
// One call at a time, so that there is an order. What is done by other calls than those of recorder.bzl, or by a shared
// library, is not seen; a test holds the whole history against the tree on disk, where it shows. Of syncs, fsync and
// fdatasync count; sync_file_range doesn't, since it reaches neither sizes nor the drive's own cache.
#pragma once

#include <string>

#include "tests/power/history.h"

namespace coldsnap {

class Recorder {
 public:
  // Records everything below `folder`, which is empty; one recorder at a time.
  explicit Recorder(const std::string& folder);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Ends the recording.
  History Finish() &&;
};

}  // namespace coldsnap
