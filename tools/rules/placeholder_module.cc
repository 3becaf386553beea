// Proves the extension machinery until py/coldsnap/_native has sources.
#include <isa-l.h>
#include <nanobind/nanobind.h>

namespace nb = nanobind;

NB_MODULE(_native, m) {
  m.doc() = "Bindings. Import `coldsnap` instead.";
  m.def("crc32", [](nb::bytes data) {
    return crc32_gzip_refl(0, static_cast<const unsigned char*>(data.data()), data.size());
  });
}
