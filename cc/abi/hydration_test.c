// The C ABI as a program in C uses it, into memory from malloc().
#include "cc/abi/hydration.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cc/abi/fixture.h"

enum { kCount = 3, kUntouched = 0x55, kPoison = 0xff };
static const uint64_t kSizes[kCount] = {1000001, 65536, 513};

static coldsnap_hydration_error last(void) {
  coldsnap_hydration_error error = {.struct_size = sizeof(error)};
  if (coldsnap_hydration_last_error(&error) != 0) abort();
  return error;
}

// Whether a call has failed with this code and these words in its message.
static int failed(int32_t result, const char* code, const char* words) {
  const coldsnap_hydration_error error = last();
  return result == -1 && strcmp(error.code, code) == 0 && strstr(error.message, words) != NULL;
}

static coldsnap_hydration* open_on_host(const fixture* made) {
  const coldsnap_hydration_open_options options = {
      .struct_size = sizeof(options), .device = "host", .artifact = fixture_path(made)};
  coldsnap_hydration* handle = NULL;
  CHECK(coldsnap_hydration_open(&options, &handle) == 0);
  CHECK(handle != NULL);
  return handle;
}

// Memory for each extent, filled with kUntouched.
typedef struct destination {
  unsigned char* bytes[kCount];
  coldsnap_hydration_range ranges[kCount];
} destination;

static destination destination_new(void) {
  destination made;
  for (int i = 0; i < kCount; ++i) {
    made.bytes[i] = malloc(kSizes[i]);
    if (made.bytes[i] == NULL) abort();
    memset(made.bytes[i], kUntouched, kSizes[i]);
    made.ranges[i] = (coldsnap_hydration_range){.struct_size = sizeof(made.ranges[i]),
                                                .extent = (uint64_t)i,
                                                .address = (uintptr_t)made.bytes[i],
                                                .nbytes = kSizes[i]};
  }
  return made;
}

static void destination_delete(destination* made) {
  for (int i = 0; i < kCount; ++i) free(made->bytes[i]);
}

static int every_byte_is(const destination* made, unsigned char value) {
  for (int i = 0; i < kCount; ++i) {
    for (uint64_t at = 0; at < kSizes[i]; ++at) {
      if (made->bytes[i][at] != value) return 0;
    }
  }
  return 1;
}

static int is_restored(const destination* made, const fixture* from) {
  for (int i = 0; i < kCount; ++i) {
    if (!fixture_holds(from, (uint64_t)i, made->bytes[i])) return 0;
  }
  return 1;
}

typedef struct seen {
  uint64_t done_bytes;
  uint64_t total_bytes;
  int32_t answer;
  coldsnap_hydration* handle;  // if there is one, it is used once more from within
} seen;

static int32_t on_progress(const coldsnap_hydration_progress* progress) {
  seen* const to = progress->user;
  CHECK(progress->struct_size == sizeof(*progress));
  CHECK(progress->done_bytes >= to->done_bytes);
  to->done_bytes = progress->done_bytes;
  to->total_bytes = progress->total_bytes;
  if (to->handle != NULL) {
    CHECK(failed(coldsnap_hydration_run(to->handle, NULL, 0, NULL, NULL), "policy_refused", "in use by another call"));
    CHECK(failed(coldsnap_hydration_close(to->handle), "policy_refused", "in use by another call"));
  }
  return to->answer;
}

static void test_describe(const fixture* made) {
  coldsnap_hydration* handle = open_on_host(made);
  coldsnap_hydration_artifact artifact = {.struct_size = sizeof(artifact)};
  CHECK(coldsnap_hydration_describe(handle, &artifact) == 0);
  CHECK(strlen(artifact.artifact_root) == 64);
  CHECK(strcmp(artifact.shard, "shard-00-00-00") == 0);
  CHECK(artifact.extent_count == kCount);
  uint64_t payload_bytes = 0;
  for (int i = 0; i < kCount; ++i) {
    CHECK(artifact.extent_nbytes[i] == kSizes[i]);
    payload_bytes += kSizes[i];
  }
  CHECK(artifact.payload_bytes == payload_bytes);
  CHECK(artifact.blob_fd > 2);
  CHECK(coldsnap_hydration_close(handle) == 0);
}

static void test_run_restores_and_reports(const fixture* made) {
  coldsnap_hydration* handle = open_on_host(made);
  destination to = destination_new();
  seen progress = {.handle = handle};
  const coldsnap_hydration_run_options options = {.struct_size = sizeof(options),
                                                  .backend = "buffered",
                                                  .verify = "crc32",
                                                  .chunk_bytes = 65536,
                                                  .queue_depth = 3,
                                                  .read_threads = 2,
                                                  .progress = on_progress,
                                                  .user = &progress};
  coldsnap_hydration_report report = {.struct_size = sizeof(report)};
  CHECK(coldsnap_hydration_run(handle, to.ranges, kCount, &options, &report) == 0);
  CHECK(is_restored(&to, made));
  CHECK(progress.done_bytes == report.payload_bytes && progress.total_bytes == report.payload_bytes);

  CHECK(report.route_count == 1 && strcmp(report.routes[0], "buffered") == 0);
  CHECK(report.route_bytes[0] == report.payload_bytes && report.route_extents[0] == kCount);
  CHECK(report.read_bytes >= report.payload_bytes && report.pinned_bytes > 0);
  CHECK(report.chunk_bytes == 65536 && report.queue_depth == 3);
  CHECK(report.residency_after <= 1 && report.residency_before <= 1);
  CHECK(report.wall_s > 0 && report.read_s > 0 && report.digest_s > 0);
  CHECK(report.gds_path == NULL && report.gds_evidence == NULL);
  destination_delete(&to);
  CHECK(coldsnap_hydration_close(handle) == 0);
}

static void test_defaults(const fixture* made) {
  coldsnap_hydration* handle = open_on_host(made);
  destination to = destination_new();
  coldsnap_hydration_report report = {.struct_size = sizeof(report)};
  double seconds = -1;
  CHECK(coldsnap_hydration_prepare(handle, NULL, &seconds) == 0);
  CHECK(seconds >= 0);
  CHECK(coldsnap_hydration_run(handle, to.ranges, kCount, NULL, &report) == 0);
  CHECK(is_restored(&to, made));
  CHECK(report.chunk_bytes == 4 << 20 && report.queue_depth == 8);
  CHECK(report.reason_count >= 1 && report.reason_codes[0][0] != '\0');  // "auto" always says why
  CHECK(report.reason_details[0][0] != '\0');
  // An older caller, whose report ends after the routes.
  coldsnap_hydration_report older = {.struct_size = offsetof(coldsnap_hydration_report, reason_count)};
  CHECK(coldsnap_hydration_run(handle, to.ranges, kCount, NULL, &older) == 0);
  CHECK(older.route_count >= 1 && older.payload_bytes == 0);
  CHECK(coldsnap_hydration_run(handle, NULL, 0, NULL, NULL) == 0);
  destination_delete(&to);
  CHECK(coldsnap_hydration_close(handle) == 0);
}

static void test_open_refuses(const fixture* made) {
  coldsnap_hydration_open_options options = {
      .struct_size = sizeof(options), .device = "host", .artifact = "no/such/artifact"};
  coldsnap_hydration* handle = (coldsnap_hydration*)&options;
  CHECK(failed(coldsnap_hydration_open(&options, &handle), "request_invalid", "no/such/artifact"));
  CHECK(handle == NULL);
  CHECK(strcmp(last().stage, "open") == 0 && strcmp(last().domain, "errno") == 0 && last().native == 2);

  options.artifact = fixture_path(made);
  options.shard = "shard-07-00-00";
  CHECK(failed(coldsnap_hydration_open(&options, &handle), "request_invalid", "shard-07-00-00"));
  options.shard = NULL;
  options.device = "abacus";
  CHECK(failed(coldsnap_hydration_open(&options, &handle), "request_invalid", "abacus"));
  options.device = NULL;
  CHECK(failed(coldsnap_hydration_open(&options, &handle), "request_invalid", "device is NULL"));
  CHECK(last().remedy[0] != '\0');
  options.struct_size = 3;
  CHECK(failed(coldsnap_hydration_open(&options, &handle), "request_invalid", "struct_size is 3"));
  CHECK(failed(coldsnap_hydration_open(NULL, &handle), "request_invalid", "open_options: it is NULL"));
  CHECK(failed(coldsnap_hydration_open(&options, NULL), "request_invalid", "NULL"));
}

static void test_out_of_memory_is_an_error(const fixture* made) {
  const coldsnap_hydration_open_options options = {
      .struct_size = sizeof(options), .device = "host", .artifact = fixture_path(made)};
  coldsnap_hydration* handle = NULL;
  fixture_fail_new(1);
  const int32_t result = coldsnap_hydration_open(&options, &handle);
  fixture_fail_new(0);
  CHECK(failed(result, "out_of_memory", "host memory ran out"));
  CHECK(handle == NULL);
}

static void test_run_refuses_and_touches_nothing(const fixture* made) {
  coldsnap_hydration* handle = open_on_host(made);
  destination to = destination_new();
  coldsnap_hydration_run_options options = {.struct_size = sizeof(options)};
  coldsnap_hydration_report report = {.struct_size = 4};
#define RUN(count) coldsnap_hydration_run(handle, to.ranges, count, &options, NULL)

  CHECK(failed(coldsnap_hydration_run(handle, to.ranges, kCount, &options, &report), "request_invalid", "is 4"));
  CHECK(failed(coldsnap_hydration_run(NULL, to.ranges, kCount, &options, NULL), "request_invalid", "handle is NULL"));
  CHECK(failed(coldsnap_hydration_run(handle, NULL, kCount, &options, NULL), "request_invalid", "range 0: it is NULL"));
  CHECK(failed(RUN(SIZE_MAX), "request_invalid", "the artifact has 3 extents"));
  to.ranges[1].nbytes -= 1;
  CHECK(failed(RUN(kCount), "layout_mismatch", "65536 bytes, its destination 65535"));
  to.ranges[1].nbytes += 1;
  to.ranges[1].struct_size -= 8;
  CHECK(failed(RUN(kCount), "request_invalid", "range 1 of 3"));
  to.ranges[1].struct_size += 8;
  to.ranges[2].extent = (uint64_t)1 << 32;
  CHECK(failed(RUN(kCount), "request_invalid", "4294967296"));
  to.ranges[2].extent = 3;
  CHECK(failed(RUN(kCount), "layout_mismatch", "no extent 3"));
  to.ranges[2].extent = 2;

  options.backend = "rocket";
  CHECK(failed(RUN(kCount), "request_invalid", "\"rocket\", it must be auto, buffered"));
  options.backend = NULL;
  options.verify = "md5";
  CHECK(failed(RUN(kCount), "request_invalid", "\"md5\", it must be crc32"));
  options.verify = NULL;
  options.queue_depth = UINT64_MAX;
  CHECK(failed(RUN(kCount), "request_invalid", "queue_depth"));
  options.queue_depth = 0;
  options.chunk_bytes = 65537;
  CHECK(failed(RUN(kCount), "request_invalid", "65537"));
  options.chunk_bytes = 0;
  options.stream_count = 1;
  CHECK(failed(RUN(kCount), "request_invalid", "streams is NULL"));
  options.stream_count = 0;
  options.pinned_max_bytes = 1;
  CHECK(failed(RUN(kCount), "request_invalid", "the limit is 1"));
  options.pinned_max_bytes = 0;

  CHECK(every_byte_is(&to, kUntouched));
  CHECK(RUN(kCount) == 0);
  CHECK(is_restored(&to, made));
#undef RUN
  destination_delete(&to);
  CHECK(coldsnap_hydration_close(handle) == 0);
}

static void test_structs_of_other_versions(const fixture* made) {
  coldsnap_hydration* handle = open_on_host(made);
  destination to = destination_new();
  struct {
    coldsnap_hydration_run_options known;
    uint64_t unknown;
  } newer = {{.struct_size = sizeof(newer), .backend = "buffered"}, 1};
  const int32_t result = coldsnap_hydration_run(handle, to.ranges, kCount, &newer.known, NULL);
  CHECK(failed(result, "request_invalid", "is set, and this library knows"));
  CHECK(every_byte_is(&to, kUntouched));
  newer.unknown = 0;
  CHECK(coldsnap_hydration_run(handle, to.ranges, kCount, &newer.known, NULL) == 0);

  // An older caller, who knows nothing of digests: all are compared.
  fixture_flip_bit(made, 0, 100);
  newer.known.struct_size = offsetof(coldsnap_hydration_run_options, verify);
  newer.known.verify = "none";
  CHECK(failed(coldsnap_hydration_run(handle, to.ranges, kCount, &newer.known, NULL), "data_loss", "piece 0 "));
  newer.known.struct_size = sizeof(newer);
  CHECK(coldsnap_hydration_run(handle, to.ranges, kCount, &newer.known, NULL) == 0);
  fixture_flip_bit(made, 0, 100);
  destination_delete(&to);
  CHECK(coldsnap_hydration_close(handle) == 0);
}

static void test_damage_is_found_and_poisons(const fixture* made) {
  coldsnap_hydration* handle = open_on_host(made);
  destination to = destination_new();
  fixture_flip_bit(made, 0, 70000);
  CHECK(failed(coldsnap_hydration_run(handle, to.ranges, kCount, NULL, NULL), "data_loss", "piece 1 "));
  CHECK(strcmp(last().stage, "digest") == 0 && last().remedy[0] != '\0');
  CHECK(every_byte_is(&to, kPoison));
  fixture_flip_bit(made, 0, 70000);
  CHECK(coldsnap_hydration_run(handle, to.ranges, kCount, NULL, NULL) == 0);
  CHECK(is_restored(&to, made));
  destination_delete(&to);
  CHECK(coldsnap_hydration_close(handle) == 0);
}

static void test_progress_cancels(const fixture* made) {
  coldsnap_hydration* handle = open_on_host(made);
  destination to = destination_new();
  seen progress = {.answer = 1};
  const coldsnap_hydration_run_options options = {
      .struct_size = sizeof(options), .progress = on_progress, .user = &progress};
  CHECK(failed(coldsnap_hydration_run(handle, to.ranges, kCount, &options, NULL), "cancelled", "of 1066050 bytes"));
  CHECK(every_byte_is(&to, kPoison));
  destination_delete(&to);
  CHECK(coldsnap_hydration_close(handle) == 0);
}

static void test_confirm_has_the_last_word(const fixture* made) {
  coldsnap_hydration* handle = open_on_host(made);
  destination to = destination_new();
  seen last_word = {.answer = 1};
  const coldsnap_hydration_run_options options = {
      .struct_size = sizeof(options), .confirm = on_progress, .user = &last_word};
  CHECK(failed(coldsnap_hydration_run(handle, to.ranges, kCount, &options, NULL), "policy_refused", "not confirm"));
  CHECK(last_word.done_bytes == 1066050 && last_word.total_bytes == 1066050);
  CHECK(every_byte_is(&to, kPoison));
  last_word.answer = 0;
  CHECK(coldsnap_hydration_run(handle, to.ranges, kCount, &options, NULL) == 0);
  CHECK(is_restored(&to, made));
  destination_delete(&to);
  CHECK(coldsnap_hydration_close(handle) == 0);
}

typedef struct restorer {
  const fixture* from;
  coldsnap_hydration* handle;
  destination to;
} restorer;

static void* restore_often(void* of) {
  restorer* const mine = of;
  for (int i = 0; i < 20; ++i) {
    memset(mine->to.bytes[0], kUntouched, kSizes[0]);
    CHECK(coldsnap_hydration_run(mine->handle, mine->to.ranges, kCount, NULL, NULL) == 0);
    CHECK(is_restored(&mine->to, mine->from));
  }
  return NULL;
}

static void test_two_handles_at_the_same_time(const fixture* made) {
  restorer both[2];
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i) {
    both[i] = (restorer){.from = made, .handle = open_on_host(made), .to = destination_new()};
    CHECK(pthread_create(&threads[i], NULL, restore_often, &both[i]) == 0);
  }
  for (int i = 0; i < 2; ++i) {
    CHECK(pthread_join(threads[i], NULL) == 0);
    destination_delete(&both[i].to);
    CHECK(coldsnap_hydration_close(both[i].handle) == 0);
  }
}

static void test_two_handles_and_two_artifacts(const fixture* made) {
  const uint64_t sizes[1] = {7};
  fixture* other = fixture_new(sizes, 1);
  coldsnap_hydration* first = open_on_host(made);
  coldsnap_hydration* second = open_on_host(other);
  destination to = destination_new();
  unsigned char seven[7] = {0};
  const coldsnap_hydration_range range = {.struct_size = sizeof(range), .address = (uintptr_t)seven, .nbytes = 7};
  CHECK(coldsnap_hydration_run(first, to.ranges, kCount, NULL, NULL) == 0);
  CHECK(coldsnap_hydration_run(second, &range, 1, NULL, NULL) == 0);
  CHECK(is_restored(&to, made) && fixture_holds(other, 0, seven));
  CHECK(coldsnap_hydration_close(second) == 0);
  CHECK(coldsnap_hydration_run(first, to.ranges, kCount, NULL, NULL) == 0);

  // One handle, another artifact; one that can't be opened leaves it as it was.
  CHECK(failed(coldsnap_hydration_use_artifact(first, "no/such/artifact", NULL), "request_invalid", "no/such"));
  CHECK(failed(coldsnap_hydration_use_artifact(first, NULL, NULL), "request_invalid", "NULL"));
  CHECK(coldsnap_hydration_run(first, to.ranges, kCount, NULL, NULL) == 0);
  CHECK(coldsnap_hydration_use_artifact(first, fixture_path(other), "shard-00-00-00") == 0);
  memset(seven, 0, sizeof(seven));
  CHECK(coldsnap_hydration_run(first, &range, 1, NULL, NULL) == 0);
  CHECK(fixture_holds(other, 0, seven));
  destination_delete(&to);
  CHECK(coldsnap_hydration_close(first) == 0);
  fixture_delete(other);
}

static void test_a_handle_without_an_artifact(void) {
  const coldsnap_hydration_open_options options = {.struct_size = sizeof(options), .device = "host"};
  coldsnap_hydration_artifact artifact = {.struct_size = sizeof(artifact)};
  coldsnap_hydration* handle = NULL;
  CHECK(coldsnap_hydration_open(&options, &handle) == 0);
  CHECK(coldsnap_hydration_prepare(handle, NULL, NULL) == 0);
  CHECK(failed(coldsnap_hydration_run(handle, NULL, 0, NULL, NULL), "request_invalid", "has no artifact"));
  CHECK(failed(coldsnap_hydration_describe(handle, &artifact), "request_invalid", "has no artifact"));
  CHECK(coldsnap_hydration_close(handle) == 0);
  CHECK(coldsnap_hydration_close(NULL) == 0);
}

static void* first_error_of_a_thread(void* unused) {
  (void)unused;
  CHECK(strcmp(last().code, "ok") == 0 && last().message[0] == '\0' && strcmp(last().domain, "none") == 0);
  CHECK(failed(coldsnap_hydration_run(NULL, NULL, 0, NULL, NULL), "request_invalid", "handle is NULL"));
  return NULL;
}

static void test_last_error_is_of_the_thread_and_of_failures(void) {
  const coldsnap_hydration_open_options options = {.struct_size = sizeof(options), .device = "abacus"};
  coldsnap_hydration* handle = NULL;
  CHECK(failed(coldsnap_hydration_open(&options, &handle), "request_invalid", "abacus"));
  CHECK(coldsnap_hydration_close(NULL) == 0);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, first_error_of_a_thread, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(strstr(last().message, "abacus") != NULL);

  coldsnap_hydration_error error = {.struct_size = 5};
  CHECK(coldsnap_hydration_last_error(&error) == -1);
  CHECK(coldsnap_hydration_last_error(NULL) == -1);
  CHECK(strstr(last().message, "abacus") != NULL);
}

int main(void) {
  CHECK(coldsnap_hydration_abi_version() == COLDSNAP_HYDRATION_ABI_VERSION);
  fixture* made = fixture_new(kSizes, kCount);
  test_describe(made);
  test_run_restores_and_reports(made);
  test_defaults(made);
  test_open_refuses(made);
  test_out_of_memory_is_an_error(made);
  test_run_refuses_and_touches_nothing(made);
  test_structs_of_other_versions(made);
  test_damage_is_found_and_poisons(made);
  test_progress_cancels(made);
  test_confirm_has_the_last_word(made);
  test_two_handles_at_the_same_time(made);
  test_two_handles_and_two_artifacts(made);
  test_a_handle_without_an_artifact();
  test_last_error_is_of_the_thread_and_of_failures();
  fixture_delete(made);
  puts("every check holds");
  return 0;
}
