// The extension module coldsnap._native: converts, drops the GIL, throws or returns. Decisions live on either side.
#include <nanobind/stl/string.h>

#include <string>
#include <vector>

#include "py/coldsnap/_native/bindings.h"

namespace nb = nanobind;

namespace coldsnap {

void Throw(const Status& status) {
  const nb::gil_scoped_acquire gil;
  const nb::object from_native = nb::module_::import_("coldsnap.errors").attr("from_native");
  const std::string code(CodeName(status.code()));
  const std::string domain(DomainName(status.domain()));
  const nb::object error = from_native(code.c_str(), status.message().c_str(), status.stage().c_str(),
                                       status.remedy().c_str(), domain.c_str(), status.native());
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

nb::list ListOf(const std::vector<Reason>& reasons) {
  nb::list out;
  for (const Reason& reason : reasons) {
    nb::dict entry;
    entry["code"] = reason.code;
    entry["detail"] = reason.detail;
    out.append(entry);
  }
  return out;
}

}  // namespace coldsnap

NB_MODULE(_native, m) {
  m.doc() = "Bindings of cc/capture and cc/hydrate. Import `coldsnap` instead.";
  // A child that is forked during a restore has its objects but not the thread whose frames hold them, so they are
  // never released there; that is no leak of ours, and 20 lines on the user's stderr when the child ends.
  nb::set_leak_warnings(false);
  coldsnap::BindArtifact(m);
  coldsnap::BindCapture(m);
  coldsnap::BindHydrate(m);
  coldsnap::BindLayout(m);
  coldsnap::BindMachine(m);
}
