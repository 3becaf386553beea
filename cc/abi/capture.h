// The C ABI of capture, version 1: makes an artifact from memory of a device. docs/c-abi.md has a program.
//
// Version    Compare coldsnap_capture_abi_version() with COLDSNAP_CAPTURE_ABI_VERSION before any other call. Within a
//            version functions and fields are only added, fields at the end of their struct.
// Structs    Each begins with struct_size: the caller sets it to its sizeof and zeroes whatever else it does not set. A
//            field that the caller's struct is too short for has its default, which is zero or NULL. A set field
//            that is beyond what the library knows is refused; in a struct that the library fills, it becomes zero.
// Units      Bytes; seconds on the monotonic clock. A device pointer is a uint64_t, a cudaStream_t a uintptr_t. Every
//            field takes 8 bytes. Text is UTF-8 where it is ours, and paths are as the system has them.
// Errors     A function that returns int32_t gives 0, or -1: coldsnap_capture_last_error() then says why. The codes are
//            those of docs/errors.md. No exception leaves the library. A broken promise of its own ends the process.
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

#define COLDSNAP_CAPTURE_ABI_VERSION 1

uint32_t coldsnap_capture_abi_version(void);

// A device that artifacts are made from.
typedef struct coldsnap_capture coldsnap_capture;

typedef struct coldsnap_capture_open_options {
  size_t struct_size;
  const char* device;  // "host" or "cuda:N"; required
} coldsnap_capture_open_options;

// Makes *handle, which is NULL after a failure.
int32_t coldsnap_capture_open(const coldsnap_capture_open_options* options, coldsnap_capture** handle);

// A tensor and the storage that it is a view of. docs/format.md says what may be captured and which tensors share
// bytes.
typedef struct coldsnap_capture_tensor {
  size_t struct_size;      // the same in all elements of an array
  const char* name;        // unique
  const char* dtype;       // "BF16", "F32", ...
  uint64_t dimensions;     // the length of the next two
  const uint64_t* shape;   // in elements
  const int64_t* strides;  // in elements; NULL: contiguous
  uint64_t address;        // of element 0, in the device's memory
  uint64_t storage_address;
  uint64_t storage_nbytes;
  uint64_t object;   // equal for names of one object, whatever the number; 0: an object of its own
  const char* role;  // NULL: ""
  uint64_t attr_count;
  const char* const* attrs;  // "key=value"
} coldsnap_capture_tensor;

typedef struct coldsnap_capture_progress {
  size_t struct_size;
  void* user;            // of the run options
  uint64_t done_bytes;   // rises to total_bytes
  uint64_t total_bytes;  // the payload, once for each pass: copying, check_source, preverified, two of the device's
} coldsnap_capture_progress;

// Called by the thread in run(). Zero: go on. Must return: no exception and no longjmp may leave it.
typedef int32_t (*coldsnap_capture_callback)(const coldsnap_capture_progress* progress);

typedef struct coldsnap_capture_run_options {
  size_t struct_size;
  const char* artifact;       // the folder to make; nothing may be there, its parent must be; required
  const char* identity_json;  // what is captured, an object; NULL: {}
  const char* scalars_json;   // values beside the tensors, an object; NULL: {}
  const char* account_json;   // of the capture, an object that no digest covers; NULL: {}
  const char* backend;        // "auto", "buffered", "direct"; NULL: "auto". Named, it works or the run fails
  uint64_t chunk_bytes;       // of one write; a multiple of 65536; 0: 1 MiB
  uint64_t queue_depth;       // slots of the ring, 1..64; 0: 16
  uint64_t write_threads;     // 1..64; 0: 16
  uint64_t pinned_max_bytes;  // a larger ring is refused; 0: no limit
  uint64_t check_source;      // not 0: digest the tensors again after the copy, and fail if one has changed
  uint64_t preverified;       // not 0: read the file again from the drive before the artifact is there
  const uintptr_t* streams;   // of the caller: what was submitted to them before run() is done before the first copy
  uint64_t stream_count;
  coldsnap_capture_callback progress;  // at most 20 times a second, and with all bytes done; non-zero cancels
  void* user;
  const char* place;  // of the digests: "auto", "host" (of the staged bytes), "device" (of the tensors, before and
                      // after the copy), "both"; NULL: "auto", the device where it can, but for host memory
} coldsnap_capture_run_options;

// What a run did. Lists are parallel arrays.
typedef struct coldsnap_capture_report {
  size_t struct_size;
  const char* artifact_root;  // 64 hexadecimal digits
  const char* route;          // "direct" or "buffered": how the blob was written
  uint64_t reason_count;
  const char* const* reason_codes;  // stable
  const char* const* reason_details;
  uint64_t payload_bytes;
  uint64_t blob_bytes;
  uint64_t extent_count;
  uint64_t uncovered_bytes;  // of the storages, outside every tensor
  uint64_t chunk_bytes;      // as they were used
  uint64_t queue_depth;
  uint64_t write_threads;
  uint64_t pinned_bytes;
  double residency_after;  // fraction of the blob in the page cache; negative: nobody can tell
  double open_s;           // stages overlap
  double ring_s;
  double copy_s;
  double digest_s;
  double write_s;
  double source_s;
  double sync_s;
  double reread_s;
  double publish_s;
  double wall_s;
  const char* place;  // where digests were computed: "host", "device", "both"
} coldsnap_capture_report;

// Makes the artifact, with one shard "shard-00-00-00", and returns once all of it is on the drive. Blocks.
//
// The tensors must stay alive and unchanged until it returns. Whatever fails, nothing is at `artifact`, and what was
// written is removed. The report may be NULL and is filled on success alone; its pointers are valid until the handle's
// next run() or close().
int32_t coldsnap_capture_run(coldsnap_capture* handle, const coldsnap_capture_tensor* tensors, size_t tensor_count,
                             const coldsnap_capture_run_options* options, coldsnap_capture_report* report);

// Lets everything go. NULL is nothing to close. Refused while the handle is in use.
int32_t coldsnap_capture_close(coldsnap_capture* handle);

typedef struct coldsnap_capture_error {
  size_t struct_size;
  const char* code;     // "no_space", "request_invalid", ...; "ok": none has failed in this thread
  const char* message;  // what was being done, to what, with which numbers; then the cause
  const char* stage;    // of the data path: "file", "ring", "device", "digest", "publish", "capture"; may be empty
  const char* remedy;   // may be empty
  const char* domain;   // whose number `native` is: "errno", "cuda" or "none"
  int64_t native;
} coldsnap_capture_error;

// Why the last call of this library that failed in the calling thread did so, one of hydration too. The text is valid
// until the next failure in this thread. Fails, and says nothing more, only if the struct can't be filled.
int32_t coldsnap_capture_last_error(coldsnap_capture_error* error);

#ifdef __cplusplus
}
#endif
