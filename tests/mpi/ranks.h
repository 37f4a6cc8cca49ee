#pragma once
#include "runtime/comm.h"

namespace ssn {
/// The communicator of a test program under mpirun; every rank runs every test.
Comm& test_comm();
}  // namespace ssn
