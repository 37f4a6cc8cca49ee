#pragma once
#include <string>
#include <vector>

#include "runtime/names.h"
#include "tools/training/task.h"

// The tensors of a network without sharing, as other programs know them.
namespace ssn {

enum class TensorNames : std::uint8_t {
  torch,  // torch_name()
  own,    // weights/<layer>, parameters/<name>, statistics/<name>
};
template <>
struct Names<TensorNames> {
  static constexpr std::string_view what = "names", values[] = {"torch", "own"};
};
/// The order of a weight's axes.
enum class WeightLayout : std::uint8_t {
  oihw,  // PyTorch's: convolutions (O, I, kh, kw), linear layers (O, I)
  hwio,  // TensorFlow's and JAX's: (kh, kw, I, O) and (I, O)
};
template <>
struct Names<WeightLayout> {
  static constexpr std::string_view what = "layout", values[] = {"oihw", "hwio"};
};

struct DenseTensor {
  std::string own, torch;
  Shape shape;
  int layer = -1;      // whose weight it is
  Tensor tensor = {};  // if of no layer: the parameter or running statistic itself

  const std::string& name(TensorNames names) const { return names == TensorNames::own ? own : torch; }
};
/// Layers first, then parameters and statistics, each in the order of construction. `network`: its name.
std::vector<DenseTensor> dense_tensors(const Model& model, std::string_view network);

/// A weight (oihw) in this layout, and back: `shape` is the one that it has as oihw.
Tensor to_layout(const Tensor& weight, WeightLayout layout);
Shape shape_in(const Shape& shape, WeightLayout layout);
Tensor from_layout(const Tensor& weight, const Shape& shape, WeightLayout layout);

/// The values: weights generated once (Model::weights eager).
Archive dense_weights(Model& model, std::string_view network, TensorNames names, WeightLayout layout);

}  // namespace ssn
