// What a program did to a folder, and what a power cut may leave of it.
//
// After a cut there is whatever was synced, and of the rest anything: each 64 KiB piece of a write, each growth of a
// file, each change of a mode and each entry of a folder by itself, in any combination. A sync counts for what was done
// before it, to the file or folder it was called for: that of a file says nothing of the entry in its folder. A file
// system that keeps more order has fewer such states, never others. (A rename is one change: file systems with a
// journal do both ends or none.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace coldsnap {

// A file or folder, by the number of its making; 0 is the folder that is watched.
using NodeId = size_t;
inline constexpr NodeId kTop = 0;

struct Change {
  enum class Kind : uint8_t {
    kEntry,    // `folder` gets the entry `name` for `node`
    kRemove,   // and loses it
    kMove,     // from `folder` and `name` to `to_folder` and `to_name`, replacing what is there
    kGrow,     // of `node`, to at least `nbytes`
    kCut,      // to exactly `nbytes`
    kBytes,    // `bytes` at `offset`
    kMode,     // `mode`
    kSync,     // of `node`: all before is on the drive
    kSyncData  // the same, but for its mode
  };
  Kind kind{};
  NodeId node = 0;
  NodeId folder = 0;
  std::string name{};
  NodeId to_folder = 0;
  std::string to_name{};
  uint64_t nbytes = 0;
  uint64_t offset = 0;
  std::string bytes{};
  unsigned mode = 0;
};
inline bool IsSync(const Change& change) {
  return change.kind == Change::Kind::kSync || change.kind == Change::Kind::kSyncData;
}
std::string TextOf(const Change& change);

struct History {
  // A node as it was made. Whatever else a cut takes, what is there has a kind and a mode.
  struct Made {
    bool is_folder = false;
    unsigned mode = 0;
  };
  std::vector<Change> changes;
  std::vector<Made> nodes;
};

// A tree: file and folder names with what they hold.
struct Tree {
  bool is_folder = false;
  unsigned mode = 0;
  std::string bytes{};
  std::map<std::string, Tree> entries{};

  bool operator==(const Tree& other) const = default;
  // What is at that path below; none if nothing is.
  const Tree* At(const std::string& path) const;
};

// The tree below the watched folder when, of the history's first changes, those with `kept` are there.
Tree TreeOf(const History& history, const std::vector<bool>& kept);
// Whether it has an entry `name`, which is known sooner.
bool Appears(const History& history, const std::vector<bool>& kept, const std::string& name);

// For a cut after the first `count` changes: those that a sync made safe, and those that may be lost or not.
struct Cut {
  std::vector<bool> safe;
  std::vector<size_t> pending;
};
Cut CutAfter(const History& history, size_t count);

// The tree of a folder on disk, links and all else but files and folders left out, and the other way round.
Tree ReadTree(const std::string& folder);
void WriteTree(const Tree& tree, const std::string& folder);

}  // namespace coldsnap
