// What the test in C needs and can't make by itself: artifacts, damage in them, and memory that runs out.
#pragma once

#include <stddef.h>
#include <stdint.h>

// For a test that has last(), which gives the ABI's last error; it includes stdio.h and stdlib.h.
#define CHECK(condition)                                                                                            \
  do {                                                                                                              \
    if (!(condition)) {                                                                                             \
      fprintf(stderr, "%s:%d: %s does not hold; last error: %s: %s\n", __FILE__, __LINE__, #condition, last().code, \
              last().message);                                                                                      \
      exit(1);                                                                                                      \
    }                                                                                                               \
  } while (0)

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fixture fixture;

// An artifact of `count` extents of these sizes, in data order: so the larger ones first.
fixture* fixture_new(const uint64_t* sizes, size_t count);
void fixture_delete(fixture* made);

const char* fixture_path(const fixture* made);
// Whether these are the extent's bytes.
int fixture_holds(const fixture* made, uint64_t extent, const void* bytes);
// Changes one bit of the extent in the blob; the same call changes it back.
void fixture_flip_bit(const fixture* made, uint64_t extent, uint64_t at);

// From now on, C++ finds memory in this thread (0) or does not (1).
void fixture_fail_new(int fail);

#ifdef __cplusplus
}
#endif
