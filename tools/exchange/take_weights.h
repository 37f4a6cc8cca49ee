#pragma once
#include <string>
#include <vector>

#include "tools/exchange/dense.h"

namespace ssn {

/// What became of a network's weights: how far each layer's is from the file's, |w − file's| / |file's|.
struct Taken {
  std::size_t tensors = 0;
  std::vector<double> errors = {};  // of each layer
  /// Of all layers, each counting alike.
  double root_mean_square() const;
  bool exact() const;
};

/// Gives a network (`name`) the values of a file: weights of a network without sharing, under PyTorch's names
/// or our own (`names`: found out), from HDF5, safetensors or npz; or a checkpoint, the averages where it has
/// any. Where the plan shares parameters they are fitted (ssn/fit.h), unless the checkpoint's plan is the
/// same. `layout`: of a file that does not say it. One Error lists all tensors that are missing, too many, of
/// another shape, or not finite. On one rank: the caller distributes parameters and statistics.
Taken take_weights(Model& model, const std::string& name, const std::string& path, WeightLayout layout);

/// A table of the errors to print; one line if there are none.
std::string text(const Taken& taken, const Plan& plan, const std::string& path);

}  // namespace ssn
