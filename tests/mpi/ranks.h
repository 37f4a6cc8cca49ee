#pragma once
#include <string>

#include "runtime/comm.h"

namespace ssn {
/// The communicator of a test program under mpirun; every rank runs every test.
Comm& test_comm();

/// Gives every rank a GPU of its own, the same one in all tests. Empty, or why that is not possible here.
std::string missing_gpus();
}  // namespace ssn
