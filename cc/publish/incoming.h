// Stage 5 of a capture, first half: the folder in which an artifact is built, and who builds there.
//
// The folder <parent>/<name> has a lock file <parent>/<name>.lock beside it, on which the builder holds a flock. The
// kernel lets go of it when the process ends however it ends, so a folder whose lock can be had is nobody's: what a
// killed capture left, which the next one of that name removes. The lock lies beside the folder, since what is in the
// folder becomes the artifact.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "cc/base/status.h"
#include "cc/sys/files.h"

namespace coldsnap {

class Incoming {
 public:
  // Makes the folder, for its owner alone, after removing what an ended process left there; all of it, or with
  // `keep_shards` what is no folder, for captures that resume. kPolicyRefused while
  // another capture builds under that name, of this process or another one; kRequestInvalid without `parent`.
  static Result<Incoming> Create(const std::string& parent, const std::string& name, bool keep_shards = false);

  // Removes the folders under `parent` that ended processes left, whatever their name; says how many. Only for a folder
  // that holds nothing but captures under way.
  static Result<size_t> RemoveStale(const std::string& parent);

  Incoming(Incoming&& other) noexcept;
  Incoming& operator=(Incoming&&) = delete;
  ~Incoming();  // as Close()

  const std::string& path() const { return path_; }

  // The finished folder becomes `destination`, in one step and only if nothing is there. Its parent, which must be
  // there, is synced when it returns (a parent made for it is the caller's to sync), and the lock is gone. After a
  // failure nothing is at `destination`.
  Status MoveTo(const std::string& destination) &&;

  // Removes the folder, unless it was moved, and the lock. A forked child, which is not the builder, leaves both.
  void Close();

 private:
  Incoming(std::string path, UniqueFd lock);

  std::string path_;
  UniqueFd lock_;
  pid_t pid_;
};

}  // namespace coldsnap
