#include "tools/training/task.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "runtime/trace.h"

namespace ssn {
namespace {

Tensor gather_rows(const Tensor& from, std::span<const std::int64_t> rows) {
  std::vector<std::int64_t> extents(from.shape().begin(), from.shape().end());
  const std::size_t row_bytes = from.bytes() / static_cast<std::size_t>(extents[0]);
  extents[0] = std::ssize(rows);
  Tensor to = Tensor::empty(Shape(std::span<const std::int64_t>(extents)), from.dtype());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const char* source = static_cast<const char*>(from.raw()) + static_cast<std::size_t>(rows[i]) * row_bytes;
    std::copy(source, source + row_bytes, static_cast<char*>(to.raw()) + i * row_bytes);
  }
  return to;
}

ImageTask task_of(const InputShape& input) {
  return {input.size.channels, input.size.height, input.size.width, input.classes};
}

}  // namespace

Model::Model(const TrainConfig& config, const InputShape& input, Device device)
    : Model(config, input, device, setting(config, task_of(input))) {}

Model::Model(const TrainConfig& config, const InputShape& input, Device device, Setting setting)
    : parameters(DType::f32, device),
      weights(parameters, std::move(setting.plan), value_named<WeightPolicy>(config.weights)),
      input_(input),
      reduction_(setting.reduction) {
  network = make_network(config.model, task_of(input), {weights, parameters},
                         reduction_ ? reduction_->size : NetworkSize{});
  weights.build();
}

nlohmann::json Model::plan_json() const {
  nlohmann::json json = to_json(plan());
  if (reduction_) json["reduced"] = to_json(*reduction_);
  return json;
}

void Model::build(Comm& comm) {
  const bool host = parameters.device() == Device::cpu;
  parameters.build(host ? [&](std::size_t bytes) { return comm.allocate(bytes); }
                        : std::function<Storage(std::size_t)>());
  comm.broadcast(parameters.values());
}

AveragedStatistics::AveragedStatistics(Comm& comm, Parameters& parameters) : parameters_(parameters) {
  if (comm.size() == 1) return;
  std::vector<double> sums;
  for (const Parameters::Buffer& buffer : parameters.buffers()) {
    own_.push_back(buffer.tensor.clone());
    const Tensor host = buffer.tensor.to(Device::cpu);
    sums.insert(sums.end(), host.span<float>().begin(), host.span<float>().end());
  }
  comm.sum_in_rank_order(sums);
  std::size_t at = 0;
  for (const Parameters::Buffer& buffer : parameters.buffers()) {
    Tensor mean = Tensor::empty(buffer.tensor.shape(), DType::f32);
    for (float& value : mean.span<float>()) value = static_cast<float>(sums[at++] / comm.size());
    buffer.tensor.copy_from(mean);
  }
}

AveragedStatistics::~AveragedStatistics() {
  for (std::size_t i = 0; i < own_.size(); ++i) parameters_.buffers()[i].tensor.copy_from(own_[i]);
}

Metrics evaluate(Comm& comm, Model& model, const Loader& loader) {
  const Span span("evaluate");
  const NoGrad no_grad;
  Metrics metrics;
  for (std::int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
    const Batch batch = loader.batch(0, step, comm.rank(), comm.size());
    if (batch.size() == 0) continue;
    const Device device = model.parameters.device();
    const Tensor labels = batch.labels.to(device);
    const Var logits = model.network->forward(Var::constant(batch.images.to(device)), false);
    const Var loss = cross_entropy(logits, labels, 0, 1);
    metrics.add(logits.value(), batch.labels, *loss.value().to(Device::cpu).data<float>());
  }
  metrics.sum_over(comm);
  return metrics;
}

void store_model(const Model& model, const Dataset& dataset, const std::string& config, Archive& archive) {
  for (const Parameters::Entry& entry : model.parameters.entries()) {
    archive.tensors["parameters/" + entry.name] = entry.leaf.value();
  }
  for (const Parameters::Buffer& buffer : model.parameters.buffers()) {
    archive.tensors["statistics/" + buffer.name] = buffer.tensor.clone();
  }
  archive.attributes["config"] = config;
  archive.attributes["plan"] = to_json(model.plan()).dump();
  archive.attributes["data/input"] = model.input().size.text();
  archive.attributes["data/classes"] = model.input().classes;
  const Normalization& n = dataset.normalization;
  archive.attributes["data/mean"] = std::vector<double>(n.mean.begin(), n.mean.end());
  archive.attributes["data/std"] = std::vector<double>(n.std.begin(), n.std.end());
}

void restore_model(Model& model, const Archive& archive) {
  const std::string plan = to_json(model.plan()).dump();
  check(archive.attribute<std::string>("plan") == plan, "checkpoint",
        "it holds another network, or one that shares its parameters in another way: see ssn inspect");
  auto restore = [&](const std::string& name, const Tensor& to) {
    const Tensor& from = archive.tensor(name);
    check(from.shape() == to.shape() && from.dtype() == to.dtype(), "checkpoint",
          "{} is {} of shape {}, expected {} of {}", name, name_of(from.dtype()), from.shape().text(),
          name_of(to.dtype()), to.shape().text());
    to.copy_from(from);
  };
  for (const Parameters::Entry& entry : model.parameters.entries())
    restore("parameters/" + entry.name, entry.leaf.value());
  for (const Parameters::Buffer& buffer : model.parameters.buffers())
    restore("statistics/" + buffer.name, buffer.tensor);
  model.parameters.values_changed();
}

InputShape stored_input(const Archive& archive) {
  return {ImageSize::parse(archive.attribute<std::string>("data/input")),
          archive.attribute<std::int64_t>("data/classes")};
}

Normalization stored_normalization(const Archive& archive) {
  const auto& mean = archive.attribute<std::vector<double>>("data/mean");
  const auto& std = archive.attribute<std::vector<double>>("data/std");
  return {{mean.begin(), mean.end()}, {std.begin(), std.end()}};
}

void on_root(Comm& comm, const std::function<void()>& f) {
  std::exception_ptr error;
  std::string text;
  if (comm.rank() == 0) {
    try {
      f();
    } catch (const std::exception& e) {
      error = std::current_exception();
      text = e.what();
    }
  }
  comm.broadcast(text);
  if (error) std::rethrow_exception(error);
  if (!text.empty()) throw Error(text, std::source_location::current());
}

Split hold_out(const ImageSet& set, double share, std::uint64_t seed) {
  const auto count = static_cast<std::int64_t>(share * static_cast<double>(set.size()));
  if (count == 0) return {set, {}};
  std::vector<std::int64_t> order(static_cast<std::size_t>(set.size()));
  std::iota(order.begin(), order.end(), 0);
  const Random random(seed, "held out");
  for (std::int64_t i = set.size() - 1; i > 0; --i) {
    std::swap(order[static_cast<std::size_t>(i)],
              order[static_cast<std::size_t>(random.below(i + 1, static_cast<std::uint64_t>(i)))]);
  }
  auto part = [&](std::int64_t first, std::int64_t last) {
    std::vector<std::int64_t> rows(order.begin() + first, order.begin() + last);
    std::sort(rows.begin(), rows.end());
    return ImageSet{gather_rows(set.images, rows), gather_rows(set.labels, rows)};
  };
  return {part(count, set.size()), part(0, count)};
}

}  // namespace ssn
