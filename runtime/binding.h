#pragma once
#include <string>

namespace ssn {

/// Where this process may run, and what it was asked to use.
struct Placement {
  int allowed = 1;        // cores that this process may run on
  int node = 1;           // cores that its launcher may run on, so that all of its ranks here share them
  int local_ranks = 1;    // ranks on this node
  int requested = 0;      // OMP_NUM_THREADS, 0 if unset
  bool launched = false;  // by mpirun or srun
};
/// Reads the affinity masks and the environment.
Placement find_placement(int local_ranks);

/// The number of threads to use, and one line to print (empty if all is well).
struct ThreadChoice {
  int threads = 1;
  std::string warning;
};
/// As many threads as requested; by default the rank's share of the node's cores, but not more than it may
/// run on. Warns where a launcher has bound the rank to fewer cores: mpirun binds one or two ranks to a core
/// each, and the threads of a rank then take turns on it.
ThreadChoice choose_threads(const Placement& placement);

}  // namespace ssn
