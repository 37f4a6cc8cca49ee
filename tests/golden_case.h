#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "runtime/hdf5_file.h"

// A golden case: inputs with what an operation must give for them (tests/golden/README.md has the schema).
namespace ssn::test {

struct GoldenCase {
  std::string op;
  std::map<std::string, Attribute> attributes;
  std::map<std::string, Tensor> inputs;  // f64 or i64, as stored

  std::int64_t integer(const std::string& name) const { return std::get<std::int64_t>(attributes.at(name)); }
  double number(const std::string& name) const;
  std::string text(const std::string& name) const { return std::get<std::string>(attributes.at(name)); }
  /// An attribute that holds one or several integers.
  std::vector<std::int64_t> integers(const std::string& name) const;
  bool has(const std::string& input) const { return inputs.contains(input); }
};

/// What an adapter answers. Outputs and gradients by the names of the case.
struct GoldenResult {
  std::map<std::string, Tensor> outputs;
  std::map<std::string, Tensor> grads;
  std::vector<std::string> left_out = {};  // outputs of a rule that the project does not follow
};

/// Gives the gradients of the outputs that the case fixes (`gout`), in the adapter's own layout.
using Cotangents = std::map<std::string, Tensor>;

/// Runs a case in `dtype` on `device`. An adapter throws Skip for a rule that the project does not have
/// (yet).
struct Skip {
  std::string why;
};
using Adapter =
    std::function<GoldenResult(const GoldenCase& c, const Cotangents& gout, DType dtype, Device device)>;

/// Adapters by operation; one function a file.
std::map<std::string, Adapter> golden_op_adapters();
std::map<std::string, Adapter> golden_ssn_adapters();
std::map<std::string, Adapter> golden_kmeans_adapters();

/// The named input as a leaf.
Var leaf(const GoldenCase& c, const std::string& name, DType dtype, Device device);
/// Carries gout through and collects outputs and gradients; leaves by the names of the inputs.
GoldenResult finish(const std::map<std::string, Var>& outputs, const std::map<std::string, Var>& leaves,
                    const Cotangents& gout);

/// An image input as a channels-last leaf (matrices as they are), and what has an image's shape back in the
/// case's order.
Var image_leaf(const GoldenCase& c, const std::string& name, DType dtype, Device device);
Cotangents images_last(const Cotangents& gout);
GoldenResult images_first(GoldenResult result, std::initializer_list<const char*> names);

/// (n, c, h, w) → (n, h, w, c) and back, of a CPU tensor.
Tensor channels_last(const Tensor& t);
Tensor channels_first(const Tensor& t);

}  // namespace ssn::test
