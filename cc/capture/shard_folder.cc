#include "cc/capture/shard_folder.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

namespace coldsnap {

Result<ShardFolder> ShardFolder::Create(const std::string& parent, const std::string& shard, bool take_up) {
  ASSIGN_OR_RETURN(const UniqueFd parent_fd, OpenDirectory(parent));
  std::string path = parent + "/" + shard;
  const bool made = ::mkdir(path.c_str(), 0755) == 0;
  if (!made && !(take_up && errno == EEXIST)) return Status::FromErrno(errno, StrCat("create folder ", shard));
  ShardFolder folder(std::move(path));
  folder.taken_up_ = !made;
  ASSIGN_OR_RETURN(folder.fd_, OpenDirectoryAt(parent_fd.get(), shard));
  if (::fchmod(folder.fd_.get(), 0755) != 0) return Status::FromErrno(errno, StrCat("set the mode of ", shard));
  return folder;
}

ShardFolder::ShardFolder(ShardFolder&& other) noexcept
    : path_(std::exchange(other.path_, "")), fd_(std::move(other.fd_)), taken_up_(other.taken_up_) {}

ShardFolder::~ShardFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

bool ShardFolder::HasMoreThan(const std::string& one, const std::string& other) const {
  std::error_code error;
  for (std::filesystem::directory_iterator it(path_, error); !error && it != std::filesystem::directory_iterator();
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name != one && name != other) return true;
  }
  return static_cast<bool>(error);  // who can't look can't rule it out
}

Status ShardFolder::Empty() {
  std::error_code error;
  for (std::filesystem::directory_iterator it(path_, error); !error && it != std::filesystem::directory_iterator();
       it.increment(error)) {
    std::filesystem::remove_all(it->path(), error);
    if (error) break;
  }
  if (!error) return Status::Ok();
  return Status::FromErrno(error.value(), StrCat("remove what a killed capture left in ", path_));
}

}  // namespace coldsnap
