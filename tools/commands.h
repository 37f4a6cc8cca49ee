#pragma once
#include <string>
#include <vector>

#include "runtime/comm.h"

// The subcommands of ssn, one file each. They return the exit code; all ranks call the same one.
namespace ssn {

using Arguments = std::vector<std::string>;

inline constexpr int kStopped = 75;  // a signal came; the run can be resumed from its checkpoint

int train(Comm& comm, const Arguments& arguments);
int plan(Comm& comm, const Arguments& arguments);
int eval(Comm& comm, const Arguments& arguments);
int inspect(Comm& comm, const Arguments& arguments);
int map(Comm& comm, const Arguments& arguments);
int pack(Comm& comm, const Arguments& arguments);
int profile(Comm& comm, const Arguments& arguments);
int simulate(Comm& comm, const Arguments& arguments);
int import_weights(Comm& comm, const Arguments& arguments);
int export_weights(Comm& comm, const Arguments& arguments);

/// The command that the first argument names, with the others.
int run_command(Comm& comm, const Arguments& arguments);

/// Results, on stdout, by rank 0 alone.
void print_result(const Comm& comm, const std::string& text);

/// Finds out before the work whether the file can be written: one that is there is refused unless
/// `overwrite`. Collective.
void check_output(Comm& comm, const std::string& path, bool overwrite);

}  // namespace ssn
