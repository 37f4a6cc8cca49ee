#include "tools/training/trainer.h"

#include <algorithm>
#include <cmath>

#include "runtime/log.h"
#include "runtime/trace.h"
#include "tools/training/not_finite.h"

namespace ssn {
namespace {

constexpr const char* kCheckpoint = "checkpoint.h5";
constexpr std::uint32_t kSignal = 1, kNotFinite = 2;  // flags that the ranks agree on at each step
constexpr std::int64_t kSums = std::tuple_size_v<Metrics::Sums>;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

LoaderOptions training_options(const TrainConfig& config) {
  return {.batch = config.batch, .seed = static_cast<std::uint64_t>(config.seed)};
}

/// This rank's running statistics.
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

LoaderOptions evaluation_options(const TrainConfig& config) {
  return {.batch = std::max<std::int64_t>(1, config.batch / config.micro_batches), .training = false};
}

Trainer::Trainer(Comm& comm, Model& model, const Setup& setup)
    : comm_(comm),
      model_(model),
      config_(setup.config),
      dataset_(setup.dataset),
      directory_(setup.directory),
      recompute_(setup.recompute),
      config_text_(setup.config_text),
      stop_after_(setup.stop_after),
      train_(setup.train, training_options(config_)),
      test_(dataset_.test, evaluation_options(config_)),
      steps_per_epoch_(train_.steps_per_epoch()),
      schedule_(schedule_options(config_)),
      optimizer_(make_optimizer(optimizer_options(config_), model.parameters)),
      reducer_(comm, model.parameters, reducer_options(config_)),
      parts_(parts_of_rank(config_, comm.size())),
      metrics_file_(directory_ ? MetricsFile(directory_->file("metrics.jsonl"), 0) : MetricsFile()) {
  if (setup.validation) validation_.emplace(setup.validation, evaluation_options(config_));
  check_schedule(schedule_);
  if (config_.ema > 0) average_.emplace(config_.ema, model.parameters);
  if (config_.shards > 0) shards_.emplace(comm, model.parameters, parts_);
  epoch_metrics_.resize(static_cast<std::size_t>(measured_parts()));
  model_.weights.on_complete(
      [this](const Completion& c) {
        if (told_) told_(c);
        if (shards_) shards_->complete(c.range);
        reducer_.complete(c.range);
      },
      reducer_.least_part());
}

Trainer::~Trainer() {
  model_.weights.on_complete({});
}

double Trainer::accumulate(const Batch& batch, std::int64_t part) {
  const Device device = model_.parameters.device();
  const Tensor labels = batch.labels.to(device);
  Var logits, loss;
  {
    const Span span("forward");
    logits = model_.network->forward(network_input(batch, device),
                                     {.training = true,
                                      .seed = static_cast<std::uint64_t>(config_.seed),
                                      .step = steps_done(),
                                      .first = batch.first,
                                      .half = model_.half,
                                      .recompute = recompute_});
    loss =
        cross_entropy(logits, labels, config_.label_smoothing, 1.0 / static_cast<double>(batch.global_size));
  }
  const double loss_sum =
      *loss.value().to(Device::cpu).data<float>() * static_cast<double>(batch.global_size);
  epoch_metrics_[shards_ ? static_cast<std::size_t>(part) : 0].add(logits.value(), batch.labels, loss_sum);
  const Span span("backward");
  backward(loss);
  model_.weights.finish_backward();
  return loss_sum;
}

Trainer::Step Trainer::step(Prefetcher& batches) {
  const Span span("step");
  model_.parameters.zero_gradients();
  const auto metrics = epoch_metrics_;  // what a step that is left out must not change
  const std::vector<Tensor> own =
      config_.on_nonfinite == "skip" ? copies(statistics(model_.parameters)) : std::vector<Tensor>();
  double loss_sum = 0;
  std::int64_t labels = 0;
  for (std::int64_t part = 0; part < parts_; ++part) {
    const std::optional<Batch> batch = [&] {
      const Span waiting("data");
      return batches.next();
    }();
    check(batch.has_value(), "train", "the data ended before the run");
    model_.weights.set_reporting(part + 1 == parts_);
    if (shards_) shards_->begin();
    loss_sum += accumulate(*batch, part);
    if (shards_) shards_->end();
    labels += batch->size();
  }
  const std::optional<std::int64_t> element = reducer_.finish();
  if (shards_) shards_->finish();
  const double norm = config_.clip > 0 ? gradient_norm(model_.parameters) : 0;
  const bool finite = std::isfinite(loss_sum) && std::isfinite(norm) && !element;
  const std::uint32_t flags = comm_.agree((StopSignals::arrived() ? kSignal : 0) | (finite ? 0 : kNotFinite));
  signalled_ = (flags & kSignal) != 0;
  if ((flags & kNotFinite) == 0) {
    update(norm);
  } else {
    leave_out(std::isfinite(loss_sum), element);
    epoch_metrics_ = metrics;
    const std::vector<Tensor> now = statistics(model_.parameters);
    for (std::size_t i = 0; i < own.size(); ++i) now[i].copy_from(own[i]);
  }
  const std::int64_t samples = train_.batch_size(step_);
  ++step_;
  epoch_samples_ += samples;
  return {loss_sum / static_cast<double>(labels), samples};
}

void Trainer::update(double norm) {
  const Span span("optimizer");
  const double lr = learning_rate(schedule_, steps_done(), steps_per_epoch_);
  optimizer_->step(model_.parameters, lr, clip_scale(norm, config_.clip));
  if (average_) average_->update(model_.parameters, optimizer_->steps());
}

void Trainer::leave_out(bool loss_finite, std::optional<std::int64_t> element) {
  const std::string what = fmt::format("step {} of epoch {}: {}", step_ + 1, epoch_ + 1,
                                       not_finite_text(comm_, model_, loss_finite, element));
  check(config_.on_nonfinite == "skip", "train",
        "{}; lower --lr ({}), raise --warmup ({}), or leave such steps out with --on-nonfinite skip. {}",
        what, config_.lr, config_.warmup,
        directory_ ? "The last checkpoint is as it was" : "Nothing was saved");
  if (skipped_++ == 0 && comm_.rank() == 0) warn("left out, as all like it will be: {}", what);
}

void Trainer::run_steps(std::int64_t count) {
  Prefetcher batches(train_, from_here());
  for (std::int64_t i = 0; i < count; ++i) {
    step(batches);
    if (step_ == steps_per_epoch_) ++epoch_, step_ = 0;
  }
}

bool Trainer::run_epoch(Prefetcher& batches, Progress& progress) {
  epoch_samples_ = 0;
  const auto start = Clock::now();
  bool stop = false;
  while (step_ < steps_per_epoch_ && !stop) {
    const Step done = step(batches);
    progress.step(done.loss, done.samples);
    stop = signalled_ || steps_done() == stop_after_;
  }
  epoch_seconds_ = seconds_since(start);
  training_seconds_ += epoch_seconds_;
  trained_samples_ += epoch_samples_;
  if (step_ == steps_per_epoch_) {
    end_epoch(progress);
  } else {
    save(kCheckpoint);
  }
  return !stop;
}

std::string Trainer::measure(nlohmann::ordered_json& line, bool& best) {
  const AverageInUse in_use(average_, model_.parameters);
  const AveragedStatistics averaged(comm_, model_.parameters);
  std::string summary;
  if (validation_) {
    const Metrics metrics = measure(*validation_);
    line["validation_loss"] = rounded(metrics.loss());
    line["validation_error1"] = rounded(metrics.error1());
    summary += fmt::format("  validation error@1 {:.2f}%", metrics.error1());
    best = metrics.error1() < best_error_;
    best_error_ = std::min(best_error_, metrics.error1());
  }
  test_metrics_ = measure(test_);
  if (best) best_epoch_ = epoch_, best_test_ = *test_metrics_;
  waited_ = epoch_ - best_epoch_;
  line["test_loss"] = rounded(test_metrics_->loss());
  line["test_error1"] = rounded(test_metrics_->error1());
  line["test_error5"] = rounded(test_metrics_->error5());
  return summary + fmt::format("  test error@1 {:.2f}%", test_metrics_->error1());
}

void Trainer::end_epoch(Progress& progress) {
  const double lr = learning_rate(schedule_, steps_done() - 1, steps_per_epoch_);
  const Metrics train = sum_over(comm_, epoch_metrics_);
  check(train.samples() > 0, "train", "no step of epoch {} was finite: lower --lr ({})", epoch_ + 1,
        config_.lr);
  train_metrics_ = train;
  std::ranges::fill(epoch_metrics_, Metrics());
  ++epoch_;
  step_ = 0;
  nlohmann::ordered_json line = {{"epoch", epoch_},
                                 {"step", steps_done()},
                                 {"lr", lr},
                                 {"train_loss", rounded(train.loss())},
                                 {"train_error1", rounded(train.error1())},
                                 {"skipped_steps", skipped_}};
  std::string summary = fmt::format("loss {:.4f}  error@1 {:.2f}%", train.loss(), train.error1());
  bool best = false;
  test_metrics_.reset();
  if (epoch_ == config_.epochs || (config_.eval_every > 0 && epoch_ % config_.eval_every == 0)) {
    summary += measure(line, best);
  }
  line["seconds"] = rounded(epoch_seconds_);
  line["samples_per_second"] = rounded(static_cast<double>(epoch_samples_) / epoch_seconds_);
  line["wire_bytes_per_step"] = wire_bytes_per_step();
  if (directory_) on_root(comm_, [&] { metrics_file_.append(line); });
  if (best) save("best.h5");  // first: a checkpoint knows of no better one than there is
  save(kCheckpoint);
  progress.end_epoch(summary);
}

std::int64_t Trainer::wire_bytes_per_step() const {
  const std::int64_t steps = steps_done() - first_step_;
  return steps == 0 ? 0 : (comm_.traffic().sum.bytes - first_bytes_) / steps;
}

PrefetchOptions Trainer::from_here() const {
  return {.epoch = epoch_,
          .step = step_,
          .first_part = comm_.rank() * parts_,
          .part_count = parts_,
          .parts = comm_.size() * parts_,
          .end_epoch = config_.epochs};
}

TrainResult Trainer::run() {
  const StopSignals signals;
  const auto start = Clock::now();
  first_step_ = steps_done();
  first_bytes_ = comm_.traffic().sum.bytes;
  {
    Progress progress(config_.epochs, steps_per_epoch_, first_step_);
    Prefetcher batches(train_, from_here());
    while (!complete() && run_epoch(batches, progress)) {
    }
  }
  TrainResult result{.ending = complete()   ? Ending::complete
                               : signalled_ ? Ending::signal
                                            : Ending::stop_after};
  if (result.ending != Ending::signal) measure_result(result);
  result.train = train_metrics_;
  result.epochs = epoch_;
  result.steps = steps_done();
  result.skipped = skipped_;
  result.seconds = seconds_since(start);
  result.samples_per_second =
      training_seconds_ > 0 ? static_cast<double>(trained_samples_) / training_seconds_ : 0;
  result.wire_bytes_per_step = wire_bytes_per_step();
  return result;
}

void Trainer::measure_result(TrainResult& result) {
  if (config_.patience > 0 && complete()) {
    result.best_epoch = best_epoch_;
    result.test = best_test_;
    result.stopped_early = epoch_ < config_.epochs;
    return;
  }
  if (!test_metrics_ || step_ > 0) {
    const AverageInUse in_use(average_, model_.parameters);
    const AveragedStatistics averaged(comm_, model_.parameters);
    test_metrics_ = measure(test_);
  }
  result.test = test_metrics_;
}

void Trainer::save(std::string_view name) {
  if (!directory_) return;
  const Span span("checkpoint");
  Archive archive;
  store_own(archive);
  {
    const AveragedStatistics averaged(comm_, model_.parameters);
    store_model(model_, dataset_.facts, config_text_, archive);
  }
  store_optimizer(archive);
  if (average_) store_average(archive);
  archive.attributes["trainer/epoch"] = epoch_;
  archive.attributes["trainer/step"] = step_;
  archive.attributes["trainer/steps_per_epoch"] = steps_per_epoch_;
  archive.attributes["trainer/best_error"] = best_error_;
  archive.attributes["trainer/best_epoch"] = best_epoch_;
  archive.attributes["trainer/waited"] = waited_;
  archive.attributes["trainer/skipped"] = skipped_;
  archive.tensors["trainer/best_test"] =
      Tensor::of<double>({std::ssize(best_test_.sums())}, best_test_.sums());
  on_root(comm_, [&] { save_checkpoint(directory_->file(name), archive); });
}

void Trainer::store_optimizer(Archive& archive) const {
  for (const Optimizer::State& state : optimizer_->states())
    for (const Parameters::Entry& entry : model_.parameters.entries())
      archive.tensors[state.name + "/" + entry.name] = state.values.slice(entry.range.first, entry.shape);
  archive.attributes["trainer/optimizer_steps"] = optimizer_->steps();
}

void Trainer::restore_optimizer(const Archive& archive) {
  for (const Optimizer::State& state : optimizer_->states())
    for (const Parameters::Entry& entry : model_.parameters.entries())
      restore(archive, state.name + "/" + entry.name, state.values.slice(entry.range.first, entry.shape));
  optimizer_->set_steps(archive.attribute<std::int64_t>("trainer/optimizer_steps"));
}

void Trainer::store_average(Archive& archive) {
  for (const Parameters::Entry& entry : model_.parameters.entries())
    archive.tensors["average/parameters/" + entry.name] =
        average_->values().slice(entry.range.first, entry.shape);
  const AverageInUse in_use(average_, model_.parameters);
  const AveragedStatistics averaged(comm_, model_.parameters);
  for (const Parameters::Buffer& buffer : model_.parameters.buffers())
    archive.tensors["average/statistics/" + buffer.name] = buffer.tensor.clone();
}

void Trainer::restore_average(const Archive& archive) {
  for (const Parameters::Entry& entry : model_.parameters.entries())
    restore(archive, "average/parameters/" + entry.name,
            average_->values().slice(entry.range.first, entry.shape));
  for (std::size_t i = 0; i < average_->buffers().size(); ++i)
    restore(archive, "average/statistics/" + model_.parameters.buffers()[i].name, average_->buffers()[i]);
}

void Trainer::resume(const Archive& archive) {
  const InputShape before = stored_facts(archive).input;
  check_usage(before == model_.input(), "train",
              "--resume: it was trained on {}, found {}: has the data changed?", before.text(),
              model_.input().text());
  restore_model(model_, archive);
  restore_optimizer(archive);
  if (average_) restore_average(archive);
  const auto steps_per_epoch = archive.attribute<std::int64_t>("trainer/steps_per_epoch");
  check_usage(steps_per_epoch == steps_per_epoch_, "train",
              "--resume: an epoch had {} steps, and has {} now: has the data changed?", steps_per_epoch,
              steps_per_epoch_);
  epoch_ = archive.attribute<std::int64_t>("trainer/epoch");
  step_ = archive.attribute<std::int64_t>("trainer/step");
  check(epoch_ >= 0 && step_ >= 0 && step_ < steps_per_epoch_, "checkpoint",
        "it is at step {} of epoch {}, which is not possible", step_, epoch_);
  check_usage(stop_after_ == 0 || stop_after_ > steps_done(), "train",
              "--stop-after {}: the checkpoint is at step {} already", stop_after_, steps_done());
  best_error_ = archive.attribute<double>("trainer/best_error");
  best_epoch_ = archive.attribute<std::int64_t>("trainer/best_epoch");
  waited_ = archive.attribute<std::int64_t>("trainer/waited");
  skipped_ = archive.attribute<std::int64_t>("trainer/skipped");
  Metrics::Sums best_test{};
  const Tensor sums = Tensor::empty({std::ssize(best_test)}, DType::f64);
  restore(archive, "trainer/best_test", sums);
  std::copy_n(sums.data<double>(), best_test.size(), best_test.begin());
  best_test_.set_sums(best_test);
  restore_own(archive);
  if (directory_)
    on_root(comm_, [&] { metrics_file_ = MetricsFile(directory_->file("metrics.jsonl"), epoch_); });
}

void Trainer::store_own(Archive& archive) {
  std::vector<double> sums;
  for (const Metrics& metrics : epoch_metrics_)
    sums.insert(sums.end(), metrics.sums().begin(), metrics.sums().end());
  const Tensor rows = gather_rows<double>(comm_, sums);
  if (rows) archive.tensors["trainer/epoch_sums"] = rows.view({rows.size() / kSums, kSums});
  if (shards_) return;  // all ranks have the same statistics
  archive.attributes["trainer/ranks"] = std::int64_t{comm_.size()};
  const std::vector<float> own = one_after_another(statistics(model_.parameters));
  archive.tensors["trainer/statistics"] = gather_rows<float>(comm_, own);
  if (!average_) return;
  const std::vector<float> averages = one_after_another(average_->buffers());
  archive.tensors["trainer/average_statistics"] = gather_rows<float>(comm_, averages);
}

void Trainer::restore_own(const Archive& archive) {
  const auto rows = shards_ ? config_.shards : archive.attribute<std::int64_t>("trainer/ranks");
  const Tensor& sums = archive.tensor("trainer/epoch_sums");
  check(sums.shape() == Shape{rows, kSums}, "checkpoint", "trainer/epoch_sums has shape {}, expected {}x{}",
        sums.shape().text(), rows, kSums);
  const auto sums_of = [&](std::int64_t row) {
    Metrics::Sums of{};
    std::copy_n(sums.data<double>() + row * kSums, kSums, of.begin());
    return of;
  };
  const std::int64_t ranks = comm_.size(), rank = comm_.rank();
  if (!shards_ && rows != ranks) {
    info("the checkpoint is of {} rank(s): every rank goes on from the mean of their running statistics",
         rows);
    Metrics::Sums all{};
    for (std::int64_t row = 0; rank == 0 && row < rows; ++row)
      for (std::size_t i = 0; i < all.size(); ++i) all[i] += sums_of(row)[i];
    return epoch_metrics_[0].set_sums(all);
  }
  for (std::size_t i = 0; i < epoch_metrics_.size(); ++i)
    epoch_metrics_[i].set_sums(sums_of(rank * std::ssize(epoch_metrics_) + static_cast<std::int64_t>(i)));
  if (shards_) return;
  restore_row(archive, "trainer/statistics", ranks, rank, statistics(model_.parameters));
  if (average_) restore_row(archive, "trainer/average_statistics", ranks, rank, average_->buffers());
}

}  // namespace ssn
