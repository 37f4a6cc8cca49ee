#include "tools/exchange/dense.h"

#include "layers/models/torch_names.h"

namespace ssn {
namespace {

/// (a, b, c) becomes (c, b, a).
Tensor axes_reversed(const Tensor& from, std::int64_t a, std::int64_t b, std::int64_t c, const Shape& shape) {
  const Tensor to = Tensor::empty(shape, DType::f32);
  const float* x = from.data<float>();
  float* y = to.data<float>();
  for (std::int64_t k = 0; k < c; ++k)
    for (std::int64_t j = 0; j < b; ++j)
      for (std::int64_t i = 0; i < a; ++i) *y++ = x[(i * b + j) * c + k];
  return to;
}

std::int64_t window(const Shape& shape) {
  return shape.rank() == 4 ? shape[2] * shape[3] : 1;
}

}  // namespace

std::vector<DenseTensor> dense_tensors(const Model& model, std::string_view network) {
  std::vector<DenseTensor> all;
  const auto add = [&](const char* folder, const std::string& name) -> DenseTensor& {
    return all.emplace_back(DenseTensor{fmt::format("{}/{}", folder, name), torch_name(network, name), {}});
  };
  for (const PlannedLayer& layer : model.plan().layers) {
    DenseTensor& tensor = add("weights", layer.name);
    tensor.layer = static_cast<int>(all.size()) - 1;
    tensor.shape = layer.shape;
  }
  for (const Parameters::Entry& entry : model.parameters.entries()) {
    if (entry.section != Section::ordinary) continue;
    DenseTensor& tensor = add("parameters", entry.name);
    tensor.shape = entry.shape;
    tensor.tensor = entry.leaf.value();
  }
  for (const Parameters::Buffer& buffer : model.parameters.buffers()) {
    DenseTensor& tensor = add("statistics", buffer.name);
    tensor.shape = buffer.tensor.shape();
    tensor.tensor = buffer.tensor;
  }
  return all;
}

Shape shape_in(const Shape& shape, WeightLayout layout) {
  if (layout == WeightLayout::oihw) return shape;
  return shape.rank() == 4 ? Shape{shape[2], shape[3], shape[1], shape[0]} : Shape{shape[1], shape[0]};
}

Tensor to_layout(const Tensor& weight, WeightLayout layout) {
  if (layout == WeightLayout::oihw) return weight;
  const Shape& shape = weight.shape();
  return axes_reversed(weight, shape[0], shape[1], window(shape), shape_in(shape, layout));
}

Tensor from_layout(const Tensor& weight, const Shape& shape, WeightLayout layout) {
  if (layout == WeightLayout::oihw) return weight;
  return axes_reversed(weight, window(shape), shape[1], shape[0], shape);
}

Archive dense_weights(Model& model, std::string_view network, TensorNames names, WeightLayout layout) {
  const NoGrad no_grad;
  Archive out;
  for (const DenseTensor& t : dense_tensors(model, network))
    out.tensors[t.name(names)] =
        t.layer < 0 ? t.tensor : to_layout(model.weights.use(t.layer).value(), layout);
  return out;
}

}  // namespace ssn
