// In place of the files that use MPI, in builds without it (SSN_MPI=OFF).
#include "runtime/comm.h"
#include "runtime/error.h"
#include "runtime/launcher.h"

namespace ssn {

std::unique_ptr<Comm> make_comm(SumPath path) {
  if (path == SumPath::automatic) path_from_environment();  // what is wrong in it is wrong here too
  check_usage(!launched_with_others(), "start",
              "this build has no MPI (SSN_MPI=OFF), so it runs on one rank, but several tasks were started: "
              "start it alone, or use a build with MPI. If single runs are meant, unset SLURM_STEP_NUM_TASKS "
              "for them");
  return std::make_unique<SoloComm>();
}

}  // namespace ssn
