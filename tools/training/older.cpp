#include "tools/training/older.h"

#include <utility>

namespace ssn {
namespace {

/// Version 1 had the optimizer's states in the root, and counted no steps that were left out.
void upgrade_from_1(Archive& archive) {
  for (const std::string state : {"velocity", "mean_square", "first_moment", "second_moment"}) {
    for (auto it = archive.tensors.lower_bound(state + "/");
         it != archive.tensors.end() && it->first.starts_with(state + "/");) {
      auto node = archive.tensors.extract(it++);
      node.key() = "optimizer/" + node.key();
      archive.tensors.insert(std::move(node));
    }
  }
  if (auto steps = archive.attributes.extract("trainer/optimizer_steps"); !steps.empty()) {
    steps.key() = "optimizer/steps";
    archive.attributes.insert(std::move(steps));
  }
  if (archive.attributes.contains("trainer/step"))
    archive.attributes.try_emplace("trainer/skipped", std::int64_t{0});
}

}  // namespace

Archive load_run(const std::string& path) {
  Archive archive = load_checkpoint(path);
  if (archive.format_version == 1) upgrade_from_1(archive);
  return archive;
}

}  // namespace ssn
