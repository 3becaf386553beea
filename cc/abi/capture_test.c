// The C ABI of capture as a program in C uses it, from memory of malloc(); the ABI of hydration reads what it wrote.
#define _GNU_SOURCE  // mkdtemp
#include "cc/abi/capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cc/abi/fixture.h"
#include "cc/abi/hydration.h"

enum { kCount = 3 };
// In data order, which is that of the large ones' and then the small ones' names.
static const uint64_t kSizes[kCount] = {1000000, 65536, 512};
static const uint64_t kPayload = 1000000 + 65536 + 512;

static coldsnap_capture_error last(void) {
  coldsnap_capture_error error = {.struct_size = sizeof(error)};
  if (coldsnap_capture_last_error(&error) != 0) abort();
  return error;
}

// Whether a call has failed with this code and these words in its message.
static int failed(int32_t result, const char* code, const char* words) {
  const coldsnap_capture_error error = last();
  return result == -1 && strcmp(error.code, code) == 0 && strstr(error.message, words) != NULL;
}

// A path under the test's folder where nothing is yet.
static const char* new_path(void) {
  static char path[4096];
  static int count = 0;
  const char* base = getenv("TEST_TMPDIR");
  snprintf(path, sizeof(path), "%s/folder-XXXXXX", base == NULL ? "/tmp" : base);
  CHECK(mkdtemp(path) != NULL);
  snprintf(path + strlen(path), sizeof(path) - strlen(path), "/artifact-%d", count++);
  return path;
}

typedef struct source {
  unsigned char* bytes[kCount];
  uint64_t shapes[kCount][2];
  coldsnap_capture_tensor tensors[kCount];
} source;

static source* source_new(void) {
  static const char* const kNames[kCount] = {"a", "b", "c"};
  source* made = calloc(1, sizeof(*made));
  if (made == NULL) abort();
  for (int i = 0; i < kCount; ++i) {
    made->bytes[i] = malloc(kSizes[i]);
    if (made->bytes[i] == NULL) abort();
    for (uint64_t at = 0; at < kSizes[i]; ++at) made->bytes[i][at] = (unsigned char)((at * 7 + at / 251) % 256);
    made->shapes[i][0] = kSizes[i] / 8;
    made->shapes[i][1] = 2;
    made->tensors[i] = (coldsnap_capture_tensor){.struct_size = sizeof(made->tensors[i]),
                                                 .name = kNames[i],
                                                 .dtype = "F32",
                                                 .dimensions = 2,
                                                 .shape = made->shapes[i],
                                                 .address = (uintptr_t)made->bytes[i],
                                                 .storage_address = (uintptr_t)made->bytes[i],
                                                 .storage_nbytes = kSizes[i]};
  }
  return made;
}

static void source_delete(source* made) {
  for (int i = 0; i < kCount; ++i) free(made->bytes[i]);
  free(made);
}

static coldsnap_capture* open_on_host(void) {
  const coldsnap_capture_open_options options = {.struct_size = sizeof(options), .device = "host"};
  coldsnap_capture* handle = NULL;
  CHECK(coldsnap_capture_open(&options, &handle) == 0);
  CHECK(handle != NULL);
  return handle;
}

// Whether the artifact, restored, has the source's bytes.
static int holds(const char* path, const source* from) {
  const coldsnap_hydration_open_options options = {.struct_size = sizeof(options), .device = "host", .artifact = path};
  coldsnap_hydration* handle = NULL;
  CHECK(coldsnap_hydration_open(&options, &handle) == 0);
  coldsnap_hydration_range ranges[kCount];
  for (int i = 0; i < kCount; ++i) {
    ranges[i] = (coldsnap_hydration_range){.struct_size = sizeof(ranges[i]),
                                           .extent = (uint64_t)i,
                                           .address = (uintptr_t)calloc(1, kSizes[i]),
                                           .nbytes = kSizes[i]};
  }
  CHECK(coldsnap_hydration_run(handle, ranges, kCount, NULL, NULL) == 0);
  int same = 1;
  for (int i = 0; i < kCount; ++i) {
    void* const bytes = (void*)(uintptr_t)ranges[i].address;
    same = same && memcmp(bytes, from->bytes[i], kSizes[i]) == 0;
    free(bytes);
  }
  CHECK(coldsnap_hydration_close(handle) == 0);
  return same;
}

typedef struct seen {
  uint64_t done_bytes;
  uint64_t total_bytes;
  int32_t answer;
  coldsnap_capture* handle;  // if there is one, it is used once more from within
} seen;

static int32_t on_progress(const coldsnap_capture_progress* progress) {
  seen* const to = progress->user;
  CHECK(progress->struct_size == sizeof(*progress));
  CHECK(progress->done_bytes >= to->done_bytes);
  to->done_bytes = progress->done_bytes;
  to->total_bytes = progress->total_bytes;
  if (to->handle != NULL) {
    CHECK(failed(coldsnap_capture_run(to->handle, NULL, 0, NULL, NULL), "policy_refused", "in use by another call"));
    CHECK(failed(coldsnap_capture_close(to->handle), "policy_refused", "in use by another call"));
  }
  return to->answer;
}

static void test_run_captures_and_reports(const source* from) {
  coldsnap_capture* handle = open_on_host();
  seen progress = {.handle = handle};
  const char* const path = new_path();
  const coldsnap_capture_run_options options = {.struct_size = sizeof(options),
                                                .artifact = path,
                                                .identity_json = "{\"model\":\"example\"}",
                                                .scalars_json = "{\"scale\":1}",
                                                .account_json = "{\"by\":\"a program in C\"}",
                                                .backend = "buffered",
                                                .chunk_bytes = 131072,
                                                .queue_depth = 3,
                                                .write_threads = 2,
                                                .check_source = 1,
                                                .progress = on_progress,
                                                .user = &progress};
  coldsnap_capture_report report = {.struct_size = sizeof(report)};
  CHECK(coldsnap_capture_run(handle, from->tensors, kCount, &options, &report) == 0);
  CHECK(holds(path, from));
  CHECK(progress.done_bytes == 2 * kPayload && progress.total_bytes == 2 * kPayload);
  CHECK(strlen(report.artifact_root) == 64 && strcmp(report.route, "buffered") == 0);
  CHECK(report.payload_bytes == kPayload && report.blob_bytes > kPayload);
  CHECK(report.extent_count == kCount && report.uncovered_bytes == 0);
  CHECK(report.chunk_bytes == 131072 && report.queue_depth == 3 && report.write_threads == 2);
  CHECK(report.pinned_bytes > 0 && report.residency_after <= 1);
  CHECK(report.wall_s > 0 && report.digest_s > 0 && report.write_s > 0 && report.source_s > 0);

  CHECK(failed(coldsnap_capture_run(handle, from->tensors, kCount, &options, NULL), "exists", path));
  CHECK(holds(path, from));
  CHECK(coldsnap_capture_close(handle) == 0);
}

static void test_defaults(const source* from) {
  coldsnap_capture* handle = open_on_host();
  const char* const path = new_path();
  const coldsnap_capture_run_options options = {.struct_size = sizeof(options), .artifact = path};
  coldsnap_capture_report report = {.struct_size = sizeof(report)};
  CHECK(coldsnap_capture_run(handle, from->tensors, kCount, &options, &report) == 0);
  CHECK(holds(path, from));
  CHECK(report.chunk_bytes == 1 << 20 && report.queue_depth == 16);
  CHECK(report.reason_count >= 1 && report.reason_codes[0][0] != '\0');  // "auto" always says why
  CHECK(report.reason_details[0][0] != '\0');
  CHECK(coldsnap_capture_close(handle) == 0);
  CHECK(coldsnap_capture_close(NULL) == 0);
}

static void test_open_refuses(void) {
  coldsnap_capture_open_options options = {.struct_size = sizeof(options), .device = "abacus"};
  coldsnap_capture* handle = (coldsnap_capture*)&options;
  CHECK(failed(coldsnap_capture_open(&options, &handle), "request_invalid", "abacus"));
  CHECK(handle == NULL);
  options.device = NULL;
  CHECK(failed(coldsnap_capture_open(&options, &handle), "request_invalid", "device is NULL"));
  CHECK(last().remedy[0] != '\0');
  CHECK(failed(coldsnap_capture_open(NULL, &handle), "request_invalid", "open_options: it is NULL"));
  CHECK(failed(coldsnap_capture_open(&options, NULL), "request_invalid", "NULL"));
}

static void test_run_refuses_and_leaves_nothing(source* from) {
  coldsnap_capture* handle = open_on_host();
  const char* const path = new_path();
  coldsnap_capture_run_options options = {.struct_size = sizeof(options), .artifact = path};
  coldsnap_capture_report report = {.struct_size = 4};
#define RUN(count) coldsnap_capture_run(handle, from->tensors, count, &options, NULL)

  CHECK(failed(coldsnap_capture_run(handle, from->tensors, kCount, &options, &report), "request_invalid", "is 4"));
  CHECK(failed(coldsnap_capture_run(NULL, NULL, 0, &options, NULL), "request_invalid", "handle is NULL"));
  CHECK(failed(coldsnap_capture_run(handle, NULL, 0, NULL, NULL), "request_invalid", "run_options: it is NULL"));
  CHECK(failed(coldsnap_capture_run(handle, NULL, 1, &options, NULL), "request_invalid", "tensor 0: it is NULL"));
  options.artifact = NULL;
  CHECK(failed(RUN(kCount), "request_invalid", "path is NULL"));
  options.artifact = path;
  options.backend = "gds";
  CHECK(failed(RUN(kCount), "request_invalid", "\"gds\", it must be auto, buffered or direct"));
  options.backend = NULL;
  options.write_threads = UINT64_MAX;
  CHECK(failed(RUN(kCount), "request_invalid", "write_threads"));
  options.write_threads = 0;
  options.stream_count = 1;
  CHECK(failed(RUN(kCount), "request_invalid", "streams is NULL"));
  options.stream_count = 0;
  options.identity_json = "[]";
  CHECK(failed(RUN(kCount), "request_invalid", ""));
  options.identity_json = NULL;
  from->tensors[1].name = "a";
  CHECK(failed(RUN(kCount), "request_invalid", "a"));
  from->tensors[1].name = NULL;
  CHECK(failed(RUN(kCount), "request_invalid", "tensor 1: its name is NULL"));
  from->tensors[1].name = "b";
  from->tensors[1].shape = NULL;
  CHECK(failed(RUN(kCount), "request_invalid", "tensor 1: its shape is NULL"));
  from->tensors[1].shape = from->shapes[1];
  from->tensors[1].dimensions = UINT64_MAX;
  CHECK(failed(RUN(kCount), "request_invalid", "at most 64"));
  from->tensors[1].dimensions = 2;
  from->tensors[1].attr_count = 1;
  CHECK(failed(RUN(kCount), "request_invalid", "tensor 1: its attrs is NULL"));
  from->tensors[1].attr_count = 0;
  from->tensors[1].struct_size -= 8;
  CHECK(failed(RUN(kCount), "request_invalid", "tensor 1 of 3"));
  from->tensors[1].struct_size += 8;
  from->tensors[1].storage_nbytes -= 8;
  CHECK(failed(RUN(kCount), "request_invalid", "b"));
  from->tensors[1].storage_nbytes += 8;

  CHECK(access(path, F_OK) != 0);
  seen progress = {.answer = 1};
  options.progress = on_progress;
  options.user = &progress;
  CHECK(failed(RUN(kCount), "cancelled", "bytes"));
  CHECK(access(path, F_OK) != 0);
  options.progress = NULL;
  CHECK(RUN(kCount) == 0);
  CHECK(holds(path, from));
#undef RUN
  CHECK(coldsnap_capture_close(handle) == 0);
}

static void test_out_of_memory_is_an_error(const source* from) {
  coldsnap_capture* handle = open_on_host();
  const coldsnap_capture_run_options options = {.struct_size = sizeof(options), .artifact = new_path()};
  fixture_fail_new(1);
  const int32_t result = coldsnap_capture_run(handle, from->tensors, kCount, &options, NULL);
  fixture_fail_new(0);
  CHECK(failed(result, "out_of_memory", "host memory ran out"));
  CHECK(access(options.artifact, F_OK) != 0);
  CHECK(coldsnap_capture_run(handle, from->tensors, kCount, &options, NULL) == 0);
  CHECK(coldsnap_capture_close(handle) == 0);
}

static void test_structs_of_other_versions(const source* from) {
  coldsnap_capture* handle = open_on_host();
  struct {
    coldsnap_capture_run_options known;
    uint64_t unknown;
  } newer = {{.struct_size = sizeof(newer), .artifact = new_path()}, 1};
  const int32_t result = coldsnap_capture_run(handle, from->tensors, kCount, &newer.known, NULL);
  CHECK(failed(result, "request_invalid", "is set, and this library knows"));
  newer.unknown = 0;
  coldsnap_capture_report older = {.struct_size = offsetof(coldsnap_capture_report, payload_bytes)};
  CHECK(coldsnap_capture_run(handle, from->tensors, kCount, &newer.known, &older) == 0);
  CHECK(older.reason_count >= 1 && older.payload_bytes == 0);
  CHECK(coldsnap_capture_close(handle) == 0);
}

int main(void) {
  CHECK(coldsnap_capture_abi_version() == COLDSNAP_CAPTURE_ABI_VERSION);
  source* from = source_new();
  test_run_captures_and_reports(from);
  test_defaults(from);
  test_open_refuses();
  test_run_refuses_and_leaves_nothing(from);
  test_out_of_memory_is_an_error(from);
  test_structs_of_other_versions(from);
  source_delete(from);
  return 0;
}
