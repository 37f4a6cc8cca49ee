#pragma once
#include <string>
#include <utility>
#include <vector>

#include "tools/training/config.h"

namespace ssn {

/// Of Options::values().
using OptionValues = std::vector<std::pair<std::string, std::string>>;

/// The options that a run goes on with, where it began with others: "--lr 0.05 (before 0.1)". One that must
/// not change is a UsageError: what makes the network, its sharing and its data, and what has a state of its
/// own or decides which samples a step has. Others may: schedule, regularisation, augmentation, what is
/// saved, the machine's. `checkpoint` names it in errors.
std::vector<std::string> changed_options(const OptionValues& before, const OptionValues& now,
                                         const std::string& checkpoint);

/// What all ranks must have alike, a line each; where they do not, they would wait for each other for ever,
/// or train on labels that do not mean the same. All options but those of a rank's own machine, with what the
/// command has beside.
std::vector<std::string> common_options(const Options& options, const std::vector<std::string>& more);
/// Sizes, names, and checksums of a few samples.
std::vector<std::string> common_data(const Dataset& dataset);
/// A UsageError on all ranks unless these, and the program, are the same on all; it names the first that is
/// not, and a rank. Collective.
void check_alike(Comm& comm, const std::vector<std::string>& mine);

}  // namespace ssn
