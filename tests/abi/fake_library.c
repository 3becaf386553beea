// Libraries that are not ours. FAKE_VERSION: one of that ABI version, all functions there, of which none may be called.
// Without it: one of version 1 that lacks all other functions.
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef FAKE_VERSION
uint32_t coldsnap_hydration_abi_version(void) { return FAKE_VERSION; }
void coldsnap_hydration_close(void) { abort(); }
void coldsnap_hydration_describe(void) { abort(); }
void coldsnap_hydration_last_error(void) { abort(); }
void coldsnap_hydration_open(void) { abort(); }
void coldsnap_hydration_prepare(void) { abort(); }
void coldsnap_hydration_run(void) { abort(); }
void coldsnap_hydration_use_artifact(void) { abort(); }
#else
uint32_t coldsnap_hydration_abi_version(void) { return 1; }
#endif

// A progress callback that is called while a signal waits for Python.
int32_t fake_interrupted_call(int32_t (*callback)(const void*), const void* progress) {
  raise(SIGINT);
  return callback(progress);
}
