#include "tools/training/task.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "autograd/label_ranks.h"
#include "datasets/feed.h"
#include "runtime/liveness.h"
#include "runtime/log.h"
#include "runtime/queue.h"
#include "runtime/trace.h"

namespace ssn {

InputShape planned_input(const TrainConfig& config, const KnownSet& known, std::int64_t classes) {
  InputShape input = known.input;
  if (input.length > 0) return input;
  if (!config.input.empty()) input.size = ImageSize::parse(config.input);
  if (classes > 0) input.classes = classes;
  check_usage(
      input.size.channels > 0 && input.classes > 0, "plan",
      "only the files tell the shape of {}: give --input CxHxW and --classes N, or for text --vocab-size "
      "N or --vocab FILE",
      config.data);
  return input;
}

NetworkTask task_of(const InputShape& input) {
  return {.channels = input.size.channels,
          .height = input.size.height,
          .width = input.size.width,
          .classes = input.classes,
          .length = input.length,
          .vocabulary = input.vocabulary};
}

NetworkInput network_input(const Batch& batch, Device device) {
  return moved({batch.images, batch.tokens, batch.lengths, batch.predicted}, device);
}

NetworkInput moved(const NetworkInput& input, Device device) {
  const auto to_device = [&](const Tensor& t) { return t ? t.to(device) : t; };
  return {to_device(input.images), to_device(input.tokens), to_device(input.lengths),
          to_device(input.predicted), to_device(input.segments)};
}

Model::Model(const TrainConfig& config, const InputShape& input, Device device)
    : Model(config, input, device, setting(config, task_of(input))) {}

Model::Model(const TrainConfig& config, const InputShape& input, Device device, Setting setting)
    : parameters(DType::f32, device),
      weights(parameters, std::move(setting.plan), value_named<WeightPolicy>(config.weights)),
      half(config.precision == "bf16"),
      tf32(config.precision == "tf32"),
      name_(config.model),
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

void TrainingPrecision::set(Device device, bool tf32) {
  device_ = device;
  if constexpr (build::has_cuda) {
    if (device == Device::cuda) cuda_queue().tf32 = tf32;
  }
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

Metrics evaluate(Comm& comm, Model& model, const Loader& loader, std::int64_t parts,
                 const Measured& measured) {
  const Span span("evaluate");
  const NoGrad no_grad;
  struct Seen {
    std::size_t part;
    Tensor ranks, loss;
  };
  std::vector<Seen> seen;  // read at the end, so that no batch waits for the one before
  const std::int64_t first = comm.rank() * parts;
  const Device device = model.parameters.device();
  Feed batches(loader,
               {.first_part = first, .part_count = parts, .parts = comm.size() * parts, .end_epoch = 1},
               device);
  for (; const std::optional<Batch> batch = batches.next(); batches.start_next()) {
    if (batch->size() == 0) continue;
    const Var logits = model.network->forward(network_input(*batch, device), {});
    seen.push_back({static_cast<std::size_t>(batch->part - first), label_ranks(logits, batch->labels).value(),
                    cross_entropy(logits, batch->labels, 0, 1).value()});
    if (measured) measured(*batch, logits.value());
  }
  std::vector<Metrics> metrics(static_cast<std::size_t>(parts));
  for (const Seen& batch : seen)
    metrics[batch.part].add(batch.ranks, *batch.loss.to(Device::cpu).data<float>());
  return sum_over(comm, metrics);
}

namespace {

void store_facts(const DataFacts& facts, Archive& archive) {
  if (facts.input.length > 0) {
    archive.attributes["data/length"] = facts.input.length;
    archive.attributes["data/cased"] = std::int64_t{facts.cased};
    std::vector<std::uint8_t> text;
    for (const std::string& token : facts.vocabulary) {
      text.insert(text.end(), token.begin(), token.end());
      text.push_back('\n');
    }
    archive.tensors["data/vocabulary"] = Tensor::of<std::uint8_t>({std::ssize(text)}, text);
  } else {
    const Normalization& n = facts.normalization;
    archive.attributes["data/input"] = facts.input.size.text();
    archive.attributes["data/classes"] = facts.input.classes;
    archive.attributes["data/mean"] = std::vector<double>(n.mean.begin(), n.mean.end());
    archive.attributes["data/std"] = std::vector<double>(n.std.begin(), n.std.end());
  }
}

}  // namespace

void store_model(const Model& model, const DataFacts& facts, const std::string& config, Archive& archive) {
  for (const Parameters::Entry& entry : model.parameters.entries()) {
    archive.tensors["parameters/" + entry.name] = entry.leaf.value();
  }
  for (const Parameters::Buffer& buffer : model.parameters.buffers()) {
    archive.tensors["statistics/" + buffer.name] = buffer.tensor.clone();
  }
  archive.attributes["config"] = config;
  archive.attributes["network/name"] = model.name();
  archive.attributes["plan"] = model.plan_json().dump();
  store_facts(facts, archive);
}

void restore(const Archive& archive, const std::string& name, const Tensor& to) {
  const Tensor& from = archive.tensor(name);
  check(from.shape() == to.shape() && from.dtype() == to.dtype(), "checkpoint",
        "{}: {} is {} of shape {}, expected {} of {}", archive.path, name, name_of(from.dtype()),
        from.shape().text(), name_of(to.dtype()), to.shape().text());
  to.copy_from(from);
}

namespace {

/// Where two texts of a plan differ first, in words; empty: nowhere. What an older version did not write is
/// no difference.
std::string difference(const nlohmann::json& stored, const nlohmann::json& own, const std::string& at) {
  if (stored.is_structured() && stored.type() == own.type() &&
      (stored.is_object() || stored.size() == own.size())) {
    for (const auto& [key, value] : stored.items()) {
      const nlohmann::json other =
          stored.is_object() ? own.value(key, nlohmann::json()) : own[std::stoul(key)];
      const std::string found = difference(value, other, at + "/" + key);
      if (!found.empty()) return found;
    }
    return "";
  }
  const bool reals = stored.is_number_float() && own.is_number_float();  // libraries round them differently
  const bool alike = reals ? std::abs(stored.get<double>() - own.get<double>()) <= 1e-12 : stored == own;
  return alike ? "" : fmt::format("{} is {}, expected {}", at, stored.dump(), own.dump());
}

/// What f() gives, which depends on what the checkpoint says of itself; its errors name the file.
template <class F>
auto naming_file(const Archive& archive, F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    fail("checkpoint", "{}: what it says of itself does not fit together: {}", archive.path, e.what());
  }
}

}  // namespace

Model stored_model(const Archive& archive, const TrainConfig& config, const InputShape& input,
                   Device device) {
  return naming_file(archive, [&] { return Model(config, input, device); });
}

void check_plan(const Model& model, const Archive& archive) {
  const std::string found = difference(stored_plan(archive), model.plan_json(), "plan");
  check(found.empty(), "checkpoint",
        "{}: it holds another network, or one that shares its parameters in another way: {}", archive.path,
        found);
}

void restore_all(const Archive& archive, const std::string& prefix, const std::map<std::string, Tensor>& to) {
  for (const auto& [name, tensor] : to) {
    restore(archive, prefix + name, tensor);
    const Tensor values = archive.tensor(prefix + name).to(DType::f32);
    const auto finite = [](float value) { return std::isfinite(value); };
    check(std::ranges::all_of(values.span<float>(), finite), "checkpoint",
          "{}: {}{} has a value that is not finite: the training had failed, or the file is damaged",
          archive.path, prefix, name);
  }
  for (auto it = archive.tensors.lower_bound(prefix); it != archive.tensors.end(); ++it) {
    if (!it->first.starts_with(prefix)) return;
    check(to.contains(it->first.substr(prefix.size())), "checkpoint",
          "{}: it has a tensor {}, the network has none", archive.path, it->first);
  }
}

namespace {

/// `prefix`: of the tensors' names.
void restore_values(Model& model, const Archive& archive, const std::string& prefix) {
  check_plan(model, archive);
  std::map<std::string, Tensor> parameters, statistics;
  for (const Parameters::Entry& entry : model.parameters.entries())
    parameters[entry.name] = entry.leaf.value();
  for (const Parameters::Buffer& buffer : model.parameters.buffers()) statistics[buffer.name] = buffer.tensor;
  restore_all(archive, prefix + "parameters/", parameters);
  restore_all(archive, prefix + "statistics/", statistics);
  model.parameters.values_changed();
}

}  // namespace

void restore_model(Model& model, const Archive& archive) {
  restore_values(model, archive, "");
}

void restore_for_use(Model& model, const Archive& archive) {
  const std::string averages = "average/";
  const auto first = archive.tensors.lower_bound(averages);
  const bool averaged = first != archive.tensors.end() && first->first.starts_with(averages);
  restore_values(model, archive, averaged ? averages : "");
}

DataFacts stored_facts(const Archive& archive) {
  const auto integer = [&](const char* name) { return archive.attribute<std::int64_t>(name); };
  const auto floats = [&](const char* name) {
    const auto& values = archive.attribute<std::vector<double>>(name);
    return std::vector<float>(values.begin(), values.end());
  };
  DataFacts facts;
  if (archive.attributes.contains("data/length")) {
    facts.input.length = integer("data/length");
    facts.cased = integer("data/cased") != 0;
    const Tensor& text = archive.tensor("data/vocabulary");
    std::string token;
    for (const std::uint8_t c : text.span<std::uint8_t>()) {
      if (c == '\n')
        facts.vocabulary.push_back(std::exchange(token, {}));
      else
        token += static_cast<char>(c);
    }
    facts.input.vocabulary = std::ssize(facts.vocabulary);
  } else {
    const auto& size = archive.attribute<std::string>("data/input");
    facts.input.size = naming_file(archive, [&] { return ImageSize::parse(size); });
    facts.input.classes = integer("data/classes");
    facts.normalization = {floats("data/mean"), floats("data/std")};
    const auto& [mean, deviation] = facts.normalization;
    const auto channels = static_cast<std::size_t>(facts.input.size.channels);
    check(mean.size() == deviation.size() && (mean.empty() || mean.size() == channels), "checkpoint",
          "{}: its data/mean has {} numbers and data/std {}, its images have {} channels", archive.path,
          mean.size(), deviation.size(), channels);
  }
  return facts;
}

namespace {

std::int64_t count_replaced(Comm& comm, const SampleSet& set) {
  std::vector<std::int32_t> mine = set.replaced();
  const std::vector<std::int64_t> counts = comm.allgather(std::int64_t{std::ssize(mine)});
  mine.resize(*std::ranges::max_element(counts), -1);
  const std::vector<std::byte> bytes = comm.allgather(std::as_bytes(std::span(mine)));
  std::vector<std::int32_t> all(bytes.size() / sizeof(std::int32_t));
  if (!all.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
  const std::set<std::int32_t> samples(all.begin(), all.end());
  return std::ssize(samples) - static_cast<std::int64_t>(samples.count(-1));
}

}  // namespace

std::int64_t count_replaced(Comm& comm, const Dataset& dataset) {
  const std::int64_t train = count_replaced(comm, *dataset.train), test = count_replaced(comm, *dataset.test);
  if (train + test > 0 && comm.rank() == 0)
    warn("{} of {} training and {} of {} test samples are damaged; the next good ones took their place",
         train, dataset.train->size(), test, dataset.test->size());
  return train + test;
}

void on_root(Comm& comm, const std::function<void()>& f) {
  std::exception_ptr error;
  std::string text;
  if (comm.rank() == 0) {
    const Busy busy("does its own work");
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

}  // namespace ssn
