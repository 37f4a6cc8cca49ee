#pragma once
#include "runtime/comm.h"

namespace ssn {

// What a launcher (mpirun of Open MPI or MPICH, srun) and the user tell a process in its environment.

/// Whether this process was started as one of an MPI job: by Open MPI, or by any that speaks PMIx or PMI.
bool launched_as_rank();
/// Whether this process is rank 0 of its job, or alone.
bool launched_first();
/// Whether the launcher says that its ranks are on several nodes.
bool launched_on_several_nodes();
/// Asks MPI, before it starts, to leave the processor to other threads while it waits, unless the user has
/// said otherwise.
void yield_while_waiting();
/// Whether a launcher has started others beside this process. srun without MPI support, or mpirun of another
/// MPI, starts its tasks as runs of their own, each "rank 0 of 1".
bool launched_with_others();

/// SSN_SUM.
SumPath path_from_environment();
/// SSN_RANKS_PER_NODE: so many consecutive ranks of a node are taken for a node of their own, to try on one
/// machine what happens on several. 0: not given.
int ranks_per_node();

}  // namespace ssn
