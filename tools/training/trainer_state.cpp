#include "tools/training/trainer_state.h"

#include <algorithm>

#include "runtime/log.h"
#include "tools/training/task.h"

namespace ssn {
namespace {

constexpr std::int64_t kSums = std::tuple_size_v<Metrics::Sums>;

std::vector<float> one_after_another(std::span<const Tensor> tensors) {
  std::vector<float> out;
  for (const Tensor& tensor : tensors) {
    const Tensor host = tensor.to(Device::cpu);
    out.insert(out.end(), host.span<float>().begin(), host.span<float>().end());
  }
  return out;
}

/// (ranks, columns), of what each rank has; on rank 0 alone.
template <class T>
Tensor gather_rows(Comm& comm, std::span<const T> row) {
  const std::vector<std::byte> bytes = comm.gather(std::as_bytes(row));
  if (comm.rank() != 0) return {};
  Tensor rows = Tensor::empty({comm.size(), std::ssize(row)}, dtype_of<T>);
  std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(rows.raw()));
  return rows;
}

/// Takes row `rank` of what gather_rows made of one_after_another.
void restore_row(const Archive& archive, const std::string& name, std::int64_t ranks, std::int64_t rank,
                 std::span<const Tensor> to) {
  const Tensor& rows = archive.tensor(name);
  std::int64_t columns = 0;
  for (const Tensor& tensor : to) columns += tensor.size();
  check(rows.shape() == Shape{ranks, columns}, "checkpoint", "{} has shape {}, expected {}x{}", name,
        rows.shape().text(), ranks, columns);
  std::int64_t first = rank * columns;
  for (const Tensor& tensor : to) {
    tensor.copy_from(rows.slice(first, tensor.shape()));
    first += tensor.size();
  }
}

}  // namespace

std::vector<Tensor> statistics(const Parameters& parameters) {
  std::vector<Tensor> out;
  for (const Parameters::Buffer& buffer : parameters.buffers()) out.push_back(buffer.tensor);
  return out;
}

std::vector<Tensor> copies(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> out;
  for (const Tensor& tensor : tensors) out.push_back(tensor.clone());
  return out;
}

void copy_all(const std::vector<Tensor>& from, const std::vector<Tensor>& to) {
  for (std::size_t i = 0; i < from.size(); ++i) to[i].copy_from(from[i]);
}

void store_state(const TrainerState& state, std::int64_t steps_per_epoch, Archive& archive) {
  archive.attributes["trainer/epoch"] = state.epoch;
  archive.attributes["trainer/step"] = state.step;
  archive.attributes["trainer/steps_per_epoch"] = steps_per_epoch;
  archive.attributes["trainer/steps"] = state.epoch * steps_per_epoch + state.step;
  archive.attributes["trainer/best_error"] = state.best_error;
  archive.attributes["trainer/best_epoch"] = state.best_epoch;
  archive.attributes["trainer/waited"] = state.waited;
  archive.attributes["trainer/skipped"] = state.skipped;
  archive.tensors["trainer/best_test"] = Tensor::of<double>({kSums}, state.best_test.sums());
}

TrainerState restore_state(const Archive& archive, std::int64_t steps_per_epoch) {
  const auto integer = [&](const char* name) { return archive.attribute<std::int64_t>(name); };
  const std::int64_t before = integer("trainer/steps_per_epoch");
  check_usage(before == steps_per_epoch, "train",
              "--resume: an epoch had {} steps, and has {} now: has the data changed?", before,
              steps_per_epoch);
  TrainerState state{.epoch = integer("trainer/epoch"),
                     .step = integer("trainer/step"),
                     .skipped = integer("trainer/skipped"),
                     .best_error = archive.attribute<double>("trainer/best_error"),
                     .best_epoch = integer("trainer/best_epoch"),
                     .waited = integer("trainer/waited")};
  check(state.epoch >= 0 && state.step >= 0 && state.step < steps_per_epoch, "checkpoint",
        "it is at step {} of epoch {}, which is not possible", state.step, state.epoch);
  const Tensor sums = Tensor::empty({kSums}, DType::f64);
  restore(archive, "trainer/best_test", sums);
  Metrics::Sums best_test{};
  std::copy_n(sums.data<double>(), best_test.size(), best_test.begin());
  state.best_test.set_sums(best_test);
  return state;
}

namespace {

/// Of values as flat as the parameters, each parameter's, by its name.
std::map<std::string, Tensor> parts_of(const Tensor& values, const Parameters& parameters) {
  std::map<std::string, Tensor> parts;
  for (const Parameters::Entry& entry : parameters.entries())
    parts[entry.name] = values.slice(entry.range.first, entry.shape);
  return parts;
}

}  // namespace

void store_optimizer(const Optimizer& optimizer, const Parameters& parameters, Archive& archive) {
  for (const Optimizer::State& state : optimizer.states())
    for (const Parameters::Entry& entry : parameters.entries())
      archive.tensors[fmt::format("optimizer/{}/{}", state.name, entry.name)] =
          state.values.slice(entry.range.first, entry.shape);
  archive.attributes["optimizer/steps"] = optimizer.steps();
}

void restore_optimizer(Optimizer& optimizer, const Parameters& parameters, const Archive& archive) {
  for (const Optimizer::State& state : optimizer.states())
    restore_all(archive, fmt::format("optimizer/{}/", state.name), parts_of(state.values, parameters));
  optimizer.set_steps(archive.attribute<std::int64_t>("optimizer/steps"));
}

void store_average(Comm& comm, const std::optional<MovingAverage>& average, Parameters& parameters,
                   Archive& archive) {
  if (!average) return;
  for (const Parameters::Entry& entry : parameters.entries())
    archive.tensors["average/parameters/" + entry.name] =
        average->values().slice(entry.range.first, entry.shape);
  const std::vector<Tensor> running = statistics(parameters), own = copies(running);
  copy_all(average->buffers(), running);
  {
    const AveragedStatistics averaged(comm, parameters);
    for (const Parameters::Buffer& buffer : parameters.buffers())
      archive.tensors["average/statistics/" + buffer.name] = buffer.tensor.clone();
  }
  copy_all(own, running);
}

void restore_average(const std::optional<MovingAverage>& average, const Parameters& parameters,
                     const Archive& archive) {
  if (!average) return;
  restore_all(archive, "average/parameters/", parts_of(average->values(), parameters));
  std::map<std::string, Tensor> running;
  for (std::size_t i = 0; i < average->buffers().size(); ++i)
    running[parameters.buffers()[i].name] = average->buffers()[i];
  restore_all(archive, "average/statistics/", running);
}

void store_own(const OwnState& own, Archive& archive) {
  std::vector<double> sums;
  for (const Metrics& metrics : own.epoch_metrics)
    sums.insert(sums.end(), metrics.sums().begin(), metrics.sums().end());
  const Tensor rows = gather_rows<double>(own.comm, sums);
  if (rows) archive.tensors["trainer/epoch_sums"] = rows.view({rows.size() / kSums, kSums});
  if (own.shards > 0) return;  // all ranks have the same statistics
  archive.attributes["trainer/ranks"] = std::int64_t{own.comm.size()};
  const std::vector<float> mine = one_after_another(statistics(own.parameters));
  archive.tensors["trainer/statistics"] = gather_rows<float>(own.comm, mine);
  if (!own.average) return;
  const std::vector<float> averages = one_after_another(own.average->buffers());
  archive.tensors["trainer/average_statistics"] = gather_rows<float>(own.comm, averages);
}

void restore_own(const OwnState& own, const Archive& archive) {
  const auto rows = own.shards > 0 ? own.shards : archive.attribute<std::int64_t>("trainer/ranks");
  const Tensor& sums = archive.tensor("trainer/epoch_sums");
  check(sums.shape() == Shape{rows, kSums}, "checkpoint", "trainer/epoch_sums has shape {}, expected {}x{}",
        sums.shape().text(), rows, kSums);
  const auto sums_of = [&](std::int64_t row) {
    Metrics::Sums of{};
    std::copy_n(sums.data<double>() + row * kSums, kSums, of.begin());
    return of;
  };
  const std::int64_t ranks = own.comm.size(), rank = own.comm.rank();
  if (own.shards == 0 && rows != ranks) {
    info("the checkpoint is of {} rank(s): every rank goes on from the mean of their running statistics",
         rows);
    Metrics::Sums all{};
    for (std::int64_t row = 0; rank == 0 && row < rows; ++row)
      for (std::size_t i = 0; i < all.size(); ++i) all[i] += sums_of(row)[i];
    return own.epoch_metrics[0].set_sums(all);
  }
  for (std::size_t i = 0; i < own.epoch_metrics.size(); ++i)
    own.epoch_metrics[i].set_sums(
        sums_of(rank * std::ssize(own.epoch_metrics) + static_cast<std::int64_t>(i)));
  if (own.shards > 0) return;
  restore_row(archive, "trainer/statistics", ranks, rank, statistics(own.parameters));
  if (own.average) restore_row(archive, "trainer/average_statistics", ranks, rank, own.average->buffers());
}

}  // namespace ssn
