#include "cc/sys/cgroup.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "cc/base/strcat.h"
#include "cc/sys/pseudo_file.h"

namespace coldsnap {
namespace {

using Notes = std::vector<std::string>;

struct Membership {
  int version = 0;
  std::string path;  // as seen from the root of this process's cgroup namespace
};

struct Mount {
  std::string root;   // the group that is mounted, seen from the same place
  std::string point;  // where
};

bool Contains(const std::vector<std::string_view>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Lines of /proc/self/cgroup: "4:cpu,cpuacct:/path", and "0::/path" for version 2. A controller belongs to one version
// at a time: where a line of version 1 names it, version 2 does not have it.
std::optional<Membership> MembershipOf(std::string_view text, std::string_view controller) {
  std::optional<Membership> unified;
  for (const std::string_view line : Split(text, "\n")) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string path(line.substr(second + 1));
    if (line.substr(0, second) == "0:") unified = Membership{2, path};
    if (Contains(Split(line.substr(first + 1, second - first - 1), ","), controller)) return Membership{1, path};
  }
  return unified;
}

// mountinfo writes blanks and backslashes as \040 and the like.
std::string Unescaped(std::string_view text) {
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && std::all_of(&text[i + 1], &text[i + 4], octal)) {
      plain.push_back(static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0')));
      i += 3;
    } else {
      plain.push_back(text[i]);
    }
  }
  return plain;
}

// "31 23 0:28 /group /mount/point rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct"
std::vector<Mount> MountsOf(std::string_view text, int version, std::string_view controller) {
  std::vector<Mount> mounts;
  for (const std::string_view line : Split(text, "\n")) {
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const std::vector<std::string_view> place = Split(line.substr(0, dash), " ");
    const std::vector<std::string_view> kind = Split(line.substr(dash + 3), " ");
    if (place.size() < 5 || kind.size() < 3) continue;
    const bool fits =
        version == 2 ? kind[0] == "cgroup2" : kind[0] == "cgroup" && Contains(Split(kind[2], ","), controller);
    if (fits) mounts.push_back({Unescaped(place[3]), Unescaped(place[4])});
  }
  return mounts;
}

// What of the group's path lies below the mount's root; nothing when the group is somewhere else.
std::optional<std::string> Below(const std::string& path, const std::string& mount_root) {
  if (Contains(Split(path, "/"), "..")) return std::nullopt;  // outside of this cgroup namespace
  const std::string above = mount_root == "/" ? "" : mount_root;
  if (!path.starts_with(above)) return std::nullopt;
  std::string rest = path.substr(above.size());
  if (!rest.empty() && rest.front() != '/') return std::nullopt;
  return rest == "/" ? "" : rest;
}

std::vector<std::string> UpFrom(const std::string& top, std::string rest) {
  std::vector<std::string> folders;
  for (; !rest.empty(); rest.resize(rest.rfind('/'))) folders.push_back(top + rest);
  folders.push_back(top);
  return folders;
}

std::optional<std::string> ReadOrNote(const std::string& path, Notes& notes) {
  Result<std::string> text = ReadPseudoFile(path);
  if (text.ok()) return *std::move(text);
  std::string note = text.status().message() + "; the limits of control groups are unknown";
  if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(std::move(note));  // per controller
  return std::nullopt;
}

}  // namespace

CgroupChain FindCgroups(const std::string& root, std::string_view controller, Notes& notes) {
  const std::optional<std::string> groups = ReadOrNote(root + "/proc/self/cgroup", notes);
  if (!groups) return {};
  const std::optional<Membership> member = MembershipOf(*groups, controller);
  if (!member) return {};  // a kernel without this controller limits nothing by it
  const std::optional<std::string> mountinfo = ReadOrNote(root + "/proc/self/mountinfo", notes);
  if (!mountinfo) return {};

  const std::string group = StrCat("control group ", member->path, " (", controller, ")");
  const std::vector<Mount> mounts = MountsOf(*mountinfo, member->version, controller);
  for (const Mount& mount : mounts) {
    const std::optional<std::string> rest = Below(member->path, mount.root);
    std::error_code ignored;
    if (rest && std::filesystem::is_directory(root + mount.point + *rest, ignored)) {
      return {member->version, UpFrom(root + mount.point, *rest)};
    }
  }
  if (mounts.empty()) {
    notes.push_back(StrCat(group, " is mounted nowhere here; its limits are unknown"));
    return {};
  }
  // What a container is shown without being told its name is at least a parent of its group, so its limits hold.
  notes.push_back(StrCat(group, " is not to be found below ", root, mounts[0].point,
                         "; only the limits of that folder itself are known"));
  return {member->version, {root + mounts[0].point}};
}

}  // namespace coldsnap
