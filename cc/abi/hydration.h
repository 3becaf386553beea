// The C ABI of hydration, version 1: fills memory from an artifact, every byte verified. docs/c-abi.md has a program.
//
// Version    Compare coldsnap_hydration_abi_version() with COLDSNAP_HYDRATION_ABI_VERSION before any other call. Within
//            a version functions and fields are only added, fields at the end of their struct.
// Structs    Each begins with struct_size: the caller sets it to its sizeof and zeroes whatever else it does not set. A
//            field that the caller's struct is too short for has its default, which is zero or NULL. A set field
//            that is beyond what the library knows is refused; in a struct that the library fills, it becomes zero.
// Units      Bytes; seconds on the monotonic clock. A device pointer is a uint64_t, a cudaStream_t a uintptr_t. Every
//            field takes 8 bytes. Text is UTF-8 where it is ours, and paths are as the system has them.
// Errors     A function that returns int32_t gives 0, or -1: coldsnap_hydration_last_error() then says why. The codes
//            are those of docs/errors.md. No exception leaves the library. A broken promise of its own ends the
//            process.
// Ownership  What the caller passes is read during the call and not kept. What the library gives stays the library's
//            and is valid as long as each function says.
// Threads    Any thread may use any handle, one at a time: a second one is refused ("policy_refused"). Different
//            handles run at the same time. After a fork the child may close a handle and nothing else.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COLDSNAP_HYDRATION_ABI_VERSION 1

uint32_t coldsnap_hydration_abi_version(void);

// A device, the artifact that it is filled from, and what restores use again: pinned ring, threads, streams.
typedef struct coldsnap_hydration coldsnap_hydration;

typedef struct coldsnap_hydration_open_options {
  size_t struct_size;
  const char* device;    // "host" or "cuda:N"; required
  const char* artifact;  // the folder with artifact.json; NULL: none yet, see coldsnap_hydration_use_artifact()
  const char* shard;     // such as "shard-00-01-00"; NULL: the only one
} coldsnap_hydration_open_options;

// Makes *handle, which is NULL after a failure. The artifact is opened and checked as a whole, but for its data, which
// run() reads. Nothing is pinned and no thread starts before prepare() or run().
int32_t coldsnap_hydration_open(const coldsnap_hydration_open_options* options, coldsnap_hydration** handle);

// Puts another artifact in the place of the handle's, and keeps ring, threads and streams. After a failure the handle
// has the artifact that it had.
int32_t coldsnap_hydration_use_artifact(coldsnap_hydration* handle, const char* artifact, const char* shard);

// What a caller must know of the artifact in use and can't take from elsewhere: ranges name extents by index and have
// their sizes, the root tells whether this is the artifact that is meant, and a trust marker is compared with the file
// that is really read. Which tensor lies where in an extent stands in manifest.json (docs/format.md).
typedef struct coldsnap_hydration_artifact {
  size_t struct_size;
  const char* artifact_root;  // 64 hexadecimal digits
  const char* shard;
  uint64_t payload_bytes;         // sum of the extents
  uint64_t extent_count;          // at most 2^32-1
  const uint64_t* extent_nbytes;  // by index
  int64_t blob_fd;                // open for reading; not to be closed
} coldsnap_hydration_artifact;

// Pointers and descriptor are valid until use_artifact() or close().
int32_t coldsnap_hydration_describe(coldsnap_hydration* handle, coldsnap_hydration_artifact* artifact);

typedef struct coldsnap_hydration_progress {
  size_t struct_size;
  void* user;           // of the run options
  uint64_t done_bytes;  // verified so far; rises to total_bytes
  uint64_t total_bytes;
} coldsnap_hydration_progress;

// Called by the thread in run(). Zero: go on. Must return: no exception and no longjmp may leave it.
typedef int32_t (*coldsnap_hydration_callback)(const coldsnap_hydration_progress* progress);

// The names and meanings of the settings in docs/settings.md. A value that can't work is refused.
typedef struct coldsnap_hydration_run_options {
  size_t struct_size;
  const char* backend;           // "auto", "buffered", "direct", "gds"; NULL: "auto". Named, it works or the run fails
  const char* verify;            // "crc32", "crc32+sha256", "none"; NULL: "crc32+sha256". "none" is for whoever knows
                                 // that the very file behind blob_fd has passed a full verification
  uint64_t chunk_bytes;          // of one read; a multiple of 65536; 0: 4 MiB
  uint64_t queue_depth;          // slots of the ring, 1..64; 0: 8
  uint64_t read_threads;         // from the page cache, 1..64; 0: 4
  uint64_t direct_chunk_bytes;   // chunk_bytes when the drive decides, no more than that; 0: the same
  uint64_t direct_queue_depth;   // slots in use when the drive decides, 1..queue_depth; 0: queue_depth
  uint64_t direct_read_threads;  // reads on their way to the drive, 1..64; 0: read_threads
  uint64_t hash_threads;         // that hash and send what was read from the drive, 1..64; 0: 4
  uint64_t pinned_max_bytes;     // a larger ring is refused; 0: no limit
  const uintptr_t* streams;      // of the caller: what was submitted to them before run() is done before the first
  uint64_t stream_count;         // copy; what is submitted after it sees the restored bytes
  coldsnap_hydration_callback progress;  // at most 20 times a second, and with all bytes done; non-zero cancels
  coldsnap_hydration_callback confirm;   // the last word before the ranges are the caller's; non-zero poisons them. For
                                         // a "none" whose file must still be what it was
  void* user;
  const char* place;  // where digests are computed: "auto", "host", "device", "both"; NULL: "auto", the device where it
                      // can, but for host memory
} coldsnap_hydration_run_options;

// Where an extent goes: memory of the device, of the extent's size.
typedef struct coldsnap_hydration_range {
  size_t struct_size;  // the same in all elements of an array
  uint64_t extent;
  uint64_t address;
  uint64_t nbytes;
} coldsnap_hydration_range;

// What a run did: the receipt of docs/architecture.md, 9a, as far as the core knows it. Lists are parallel arrays.
typedef struct coldsnap_hydration_report {
  size_t struct_size;
  uint64_t route_count;  // paths that bytes took; an extent that came by two of them counts in both
  const char* const* routes;
  const uint64_t* route_bytes;
  const uint64_t* route_extents;
  uint64_t reason_count;
  const char* const* reason_codes;  // stable
  const char* const* reason_details;
  uint64_t payload_bytes;
  uint64_t read_bytes;   // with padding and alignment
  uint64_t chunk_bytes;  // as they were used
  uint64_t queue_depth;
  uint64_t pinned_bytes;
  double residency_before;  // fraction of the blob in the page cache; negative: nobody can tell
  double residency_after;
  double open_s;  // stages overlap
  double ring_s;
  double read_s;
  double digest_s;
  double copy_s;
  double drain_s;
  double publish_s;
  double wall_s;
  const char* gds_path;      // the path that GPUDirect Storage really took; NULL: it was not used
  const char* gds_evidence;  // how that is known; NULL as well
  const char* place;         // where digests were computed: "host", "device", "both"
} coldsnap_hydration_report;

// Makes ring, threads and streams for runs with these options before there is one, and says how many seconds it took.
// Options may be NULL, `seconds` too.
int32_t coldsnap_hydration_prepare(coldsnap_hydration* handle, const coldsnap_hydration_run_options* options,
                                   double* seconds);

// Fills the ranges, each extent at most once, and returns once every byte has been verified: only then are they the
// caller's. Blocks.
//
// What is refused before the first read of data leaves every byte as it was. After that, a run that ends in any way but
// success has drained its copies and filled every range with 0xFF; if even that failed the code is "device_lost", and
// the process must end. Ranges belong to the run until it returns; ones that overlap those of another run of
// this library are refused.
// Options and report may be NULL. The report is filled on success alone; its pointers are valid until the handle's next
// run() or close().
int32_t coldsnap_hydration_run(coldsnap_hydration* handle, const coldsnap_hydration_range* ranges, size_t range_count,
                               const coldsnap_hydration_run_options* options, coldsnap_hydration_report* report);

// Lets everything go. NULL is nothing to close. Refused while the handle is in use.
int32_t coldsnap_hydration_close(coldsnap_hydration* handle);

typedef struct coldsnap_hydration_error {
  size_t struct_size;
  const char* code;     // "data_loss", "request_invalid", ...; "ok": none has failed in this thread
  const char* message;  // what was being done, to what, with which numbers; then the cause
  const char* stage;    // of the data path: "open", "file", "ring", "device", "digest", "publish"; may be empty
  const char* remedy;   // may be empty
  const char* domain;   // whose number `native` is: "errno", "cuda", "gds" or "none"
  int64_t native;
} coldsnap_hydration_error;

// Why the last call that failed in the calling thread did so. Calls that succeed leave it alone, so one that a garbage
// collector or a callback makes in between is in nobody's way. The text is valid until the next failure in this thread.
// Fails, and says nothing more, only if the struct can't be filled.
int32_t coldsnap_hydration_last_error(coldsnap_hydration_error* error);

#ifdef __cplusplus
}
#endif
