// The folder of a shard while it is written: gone again unless it is kept.
#pragma once

#include <string>

#include "cc/base/status.h"
#include "cc/sys/files.h"

namespace coldsnap {

class ShardFolder {
 public:
  // The folder `parent`/`shard`, mode 0755 whatever the umask is. One that is there is kExists, or taken up if
  // `take_up`: then its files are what a killed capture left.
  static Result<ShardFolder> Create(const std::string& parent, const std::string& shard, bool take_up);

  ShardFolder(ShardFolder&& other) noexcept;
  ShardFolder& operator=(ShardFolder&&) = delete;
  ~ShardFolder();

  int fd() const { return fd_.get(); }
  bool taken_up() const { return taken_up_; }
  // Whether there are other files in it than these two.
  bool HasMoreThan(const std::string& one, const std::string& other) const;
  // Removes what is in it.
  Status Empty();
  void Keep() && { path_.clear(); }

 private:
  explicit ShardFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
  UniqueFd fd_;
  bool taken_up_ = false;
};

}  // namespace coldsnap
