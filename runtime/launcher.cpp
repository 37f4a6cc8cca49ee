#include "runtime/launcher.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "runtime/error.h"
#include "runtime/log.h"

namespace ssn {
namespace {

/// Empty if it is not set.
std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// The first of these that is set.
template <std::size_t n>
std::string_view first_of(const std::array<const char*, n>& names) {
  for (const char* name : names) {
    if (!environment(name).empty()) return environment(name);
  }
  return "";
}

}  // namespace

bool launched_as_rank() {
  return !first_of(std::array{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"}).empty();
}

bool launched_first() {
  const std::string_view rank =
      first_of(std::array{"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"});
  return rank.empty() || rank == "0";
}

bool launched_on_several_nodes() {
  const std::string_view all = first_of(std::array{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}),
                         here = first_of(std::array{"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"});
  return !all.empty() && !here.empty() && all != here;
}

void yield_while_waiting() {
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
}

bool launched_with_others() {
  const std::array<const char*, 3> sizes = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"};
  const auto above = [](std::string_view number, int least) {
    return !number.empty() && std::atoi(number.data()) > least;
  };
  // A launcher within a step of Slurm knows better than the step how many it has started.
  if (const std::string_view size = first_of(sizes); !size.empty()) return above(size, 1);
  return above(first_of(std::array{"PMIX_RANK", "PMI_RANK"}), 0) ||
         above(environment("SLURM_STEP_NUM_TASKS"), 1);
}

SumPath path_from_environment() {
  const std::string_view value = environment("SSN_SUM");
  if (value.empty()) return SumPath::automatic;
  if (value == "window") return SumPath::window;
  if (value == "allreduce") return SumPath::allreduce;
  if (value == "hierarchical") return SumPath::hierarchical;
  fail_usage("start MPI", "SSN_SUM must be window, allreduce or hierarchical, found '{}'", value);
}

int ranks_per_node() {
  const std::string_view value = environment("SSN_RANKS_PER_NODE");
  if (value.empty()) return 0;
  int ranks = 0;
  const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), ranks);
  check_usage(error == std::errc() && stop == value.data() + value.size() && ranks > 0, "start MPI",
              "SSN_RANKS_PER_NODE must be a number of ranks, found '{}'", value);
  return ranks;
}

}  // namespace ssn
