// Ranges for NVIDIA's tools (Nsight Systems): what each thread of a restore does, under the domain "coldsnap".
//
// Without a tool a range costs a look at a null pointer.
#pragma once

namespace coldsnap::nvtx {

// A thread's ranges lie within each other. `name` is a literal.
void Push(const char* name);
void Pop();

}  // namespace coldsnap::nvtx
