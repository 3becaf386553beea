// A stand-in for libcufile.so.0, over host memory. Untouched it is the library on a machine without GPUDirect Storage:
// DriverOpen ends with 5001 when compatible mode is refused. A test gets at its one FakeCufile by the exported function
// `fake_cufile` and sets what the machine has and what fails; it reads there what it was asked for.
#pragma once

#include <cstdint>
#include <string>

namespace coldsnap {

struct FakeCufile {
  // The machine.
  bool nvidia_fs = false;
  bool p2pdma = false;
  bool bounces = false;  // opens always and reads through host memory, whatever the properties say
  bool counts = true;    // statistics move, once they are started
  int version = 1150;
  // Numbers of cuFile's errors; 0 for none.
  int version_error = 0;
  int parameter_error = 0;
  int open_error = 0;
  int properties_error = 0;
  int stats_error = 0;
  int file_error = 0;
  int buffer_error = 0;
  int read_error = 0;
  int read_errno = 0;
  int interrupted_reads = 0;  // as many end with EINTR
  int open_ms = 0;            // how long the driver takes to open
  // Limits.
  uint64_t largest_buffer = UINT64_MAX;  // 5016 beyond
  uint64_t all_buffers = UINT64_MAX;     // 5036 beyond
  uint64_t longest_read = UINT64_MAX;    // reads end short of more
  // What was seen.
  bool allow_compat = true;
  bool force_compat = false;
  bool asked_for_p2pdma = false;
  std::string log_path;  // CUFILE_LOGFILE_PATH when the driver was opened
  std::string calls;     // "open file buffer read -buffer -file -open "
};

}  // namespace coldsnap

extern "C" coldsnap::FakeCufile* fake_cufile();
