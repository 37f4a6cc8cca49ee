#pragma once
#include <string>
#include <utility>
#include <vector>

#include "tools/training/config.h"

namespace ssn {

/// The options, with their values, that must be the same for a run to go on.
std::vector<std::pair<std::string, std::string>> identity(const TrainConfig& config);

/// What all ranks must have alike, a line each; where they do not, they would wait for each other for ever,
/// or train on labels that do not mean the same. The options, with what the command has
/// beside.
std::vector<std::string> common_options(const TrainConfig& config, const std::vector<std::string>& more);
/// Sizes, names, and checksums of a few samples.
std::vector<std::string> common_data(const Dataset& dataset);
/// A UsageError on all ranks unless these, and the program, are the same on all; it names the first that is
/// not, and a rank. Collective.
void check_alike(Comm& comm, const std::vector<std::string>& mine);

}  // namespace ssn
