#include "tools/training/trainer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "autograd/label_ranks.h"
#include "runtime/log.h"
#include "runtime/trace.h"
#include "tools/training/alike.h"
#include "tools/training/not_finite.h"

namespace ssn {
namespace {

constexpr const char* kMetrics = "metrics.jsonl";
constexpr std::uint32_t kSignal = 1, kNotFinite = 2,
                        kNotSaved = 4;  // flags that the ranks agree on at each step

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

LoaderOptions training_options(const TrainConfig& config) {
  return {.batch = config.batch, .seed = static_cast<std::uint64_t>(config.seed)};
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
      command_(setup.command),
      stop_after_(setup.stop_after),
      train_(setup.train, training_options(config_)),
      test_(dataset_.test, evaluation_options(config_)),
      steps_per_epoch_(train_.steps_per_epoch()),
      schedule_(schedule_options(config_)),
      optimizer_(make_optimizer(optimizer_options(config_), model.parameters)),
      reducer_(comm, model.parameters, reducer_options(config_)),
      parts_(parts_of_rank(config_, comm.size())),
      metrics_file_(directory_ ? MetricsFile(directory_->file(kMetrics)) : MetricsFile()),
      search_seconds_(setup.search_seconds),
      data_(directory_ ? common_data(dataset_) : std::vector<std::string>()) {
  if (directory_ && comm.rank() == 0)
    saver_ = std::make_unique<Saver>(
        *directory_, Saver::Options{.keep = config_.keep,
                                    .goes_on = config_.on_save_failure == "continue",
                                    .layout = config_.compress ? Layout::compressed : Layout::checked});
  if (setup.validation) validation_.emplace(setup.validation, evaluation_options(config_));
  check_schedule(schedule_);
  if (config_.ema > 0) average_.emplace(config_.ema, model.parameters);
  if (config_.shards > 0) shards_.emplace(comm, model.parameters, parts_);
  choose_recording();
  epoch_metrics_.resize(static_cast<std::size_t>(measured_parts()));
  model_.weights.on_complete(
      [this](const Completion& c) {
        if (told_) told_(c);
        if (shards_) shards_->complete(c.range);
        reducer_.complete(c.range);
      },
      reducer_.least_part());
}

/// All ranks or none: SSN_SYNC is each one's own, and a recorder asks the others.
void Trainer::choose_recording() {
  const Device device = model_.parameters.device();
  if (device != Device::cuda || config_.graph != "on") return;
  std::string why = unrecorded_because(config_, comm_.sums_on(device));
  if (comm_.agree(!why.empty()) != 0 && why.empty())
    why = "another rank cannot; does SSN_SYNC=1 reach only some of them?";
  if (why.empty())
    recorder_.emplace(comm_, parts_);
  else
    info("steps are not recorded and repeated (--graph): {}", why);
}

Trainer::~Trainer() {
  model_.weights.on_complete({});
}

Given Trainer::accumulate(const Batch& batch) {
  const Device device = model_.parameters.device();
  const TrainingPrecision precision(model_);
  const Tensor labels = batch.labels.to(device);
  Var loss;
  Tensor ranks;
  {
    const Span span("forward");
    const Var logits = model_.network->forward(network_input(batch, device),
                                               {.training = true,
                                                .seed = static_cast<std::uint64_t>(config_.seed),
                                                .step = steps_done(),
                                                .device_step = recorder_ ? recorder_->step() : nullptr,
                                                .first = batch.first,
                                                .half = model_.half,
                                                .recompute = recompute_});
    ranks = label_ranks(logits, labels).value();
    loss =
        cross_entropy(logits, labels, config_.label_smoothing, 1.0 / static_cast<double>(batch.global_size));
  }
  const Span span("backward");
  backward(loss);
  model_.weights.finish_backward();
  return {loss.value(), ranks, batch.global_size};
}

Given Trainer::queue_part(std::int64_t part, const Batch& batch) {
  const bool last = part + 1 == parts_;
  if (part == 0) model_.parameters.zero_gradients();
  model_.weights.set_reporting(last);
  if (shards_) shards_->begin();
  Given given = accumulate(batch);
  if (shards_) shards_->end();
  if (last && comm_.sums_on(model_.parameters.device())) reducer_.queue_rest();
  return given;
}

double Trainer::read(const std::vector<Given>& parts) {
  double all = 0;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const auto& [loss, ranks, batch] = parts[part];
    const double sum = *loss.to(Device::cpu).data<float>() * static_cast<double>(batch);
    epoch_metrics_[shards_ ? part : 0].add(ranks, sum);
    all += sum;
  }
  return all;
}

Trainer::Step Trainer::step(Feed& batches) {
  const Span span("step");
  if (recorder_) {
    recorder_->begin_step(steps_done());
    model_.parameters.values_changed();  // what is recorded of a step generates its own weights
  }
  const auto metrics = epoch_metrics_;  // what a step that is left out must not change
  const std::vector<Tensor> own =
      config_.on_nonfinite == "skip" ? copies(statistics(model_.parameters)) : std::vector<Tensor>();
  std::vector<Given> given;
  std::int64_t labels = 0;
  for (std::int64_t part = 0; part < parts_; ++part) {
    const std::optional<Batch> batch = [&] {
      const Span waiting("data");
      return batches.next();
    }();
    check(batch.has_value(), "train", "the data ended before the run");
    if (recorder_) recorder_->prepare(part, *batch);
    const auto start = Clock::now();
    const auto work = [&](const Batch& inputs) { return queue_part(part, inputs); };
    given.push_back(recorder_ ? recorder_->part(part, *batch, work) : work(*batch));
    queueing_seconds_ += seconds_since(start);
    labels += batch->size();
    batches.start_next();
  }
  if (!comm_.sums_on(model_.parameters.device())) reducer_.queue_rest();  // which waits
  reducer_.wait();
  const std::optional<std::int64_t> element = reducer_.not_finite();
  if (shards_) shards_->finish();
  const double loss_sum = read(given);
  const double norm = config_.clip > 0 ? gradient_norm(model_.parameters) : 0;
  const bool finite = std::isfinite(loss_sum) && std::isfinite(norm) && !element;
  const std::uint32_t flags = comm_.agree((StopSignals::arrived() ? kSignal : 0) | (finite ? 0 : kNotFinite) |
                                          (saver_ && saver_->failed() ? kNotSaved : 0));
  signalled_ = (flags & kSignal) != 0;
  if ((flags & kNotSaved) != 0) on_root(comm_, [&] { saver_->check(); });
  if ((flags & kNotFinite) == 0) {
    update();
  } else {
    leave_out(std::isfinite(loss_sum), element);
    epoch_metrics_ = metrics;
    copy_all(own, statistics(model_.parameters));
  }
  const std::int64_t samples = train_.batch_size(state_.step);
  ++state_.step;
  epoch_samples_ += samples;
  return {loss_sum / static_cast<double>(labels), samples};
}

void Trainer::update() {
  const Span span("optimizer");
  const auto start = Clock::now();
  optimizer_->begin_step(learning_rate(schedule_, steps_done(), steps_per_epoch_));
  const auto work = [&] {
    optimizer_->apply(model_.parameters, {.clip = config_.clip});
    if (average_) average_->update(model_.parameters, *optimizer_);
  };
  recorder_ ? recorder_->update(work) : work();
  model_.parameters.values_changed();  // also by what was recorded
  queueing_seconds_ += seconds_since(start);
}

void Trainer::leave_out(bool loss_finite, std::optional<std::int64_t> element) {
  const std::string what = fmt::format("step {} of epoch {}: {}", state_.step + 1, state_.epoch + 1,
                                       not_finite_text(comm_, model_, loss_finite, element));
  if (config_.on_nonfinite == "stop") settle();
  check(config_.on_nonfinite == "skip", "train",
        "{}; lower --lr ({}), raise --warmup ({}), or leave such steps out with --on-nonfinite skip. {}",
        what, config_.lr, config_.warmup,
        directory_ ? "The last checkpoint is as it was" : "Nothing was saved");
  if (state_.skipped++ == 0 && comm_.rank() == 0) warn("left out, as all like it will be: {}", what);
}

std::vector<double> Trainer::run_steps(std::int64_t count) {
  Feed batches(train_, from_here(), model_.parameters.device());
  std::vector<double> losses;
  for (std::int64_t i = 0; i < count; ++i) {
    losses.push_back(step(batches).loss);
    if (state_.step == steps_per_epoch_) ++state_.epoch, state_.step = 0;
  }
  return losses;
}

bool Trainer::run_epoch(Feed& batches, Progress& progress) {
  epoch_samples_ = 0;
  const auto start = Clock::now();
  bool stop = false;
  while (state_.step < steps_per_epoch_ && !stop) {
    const Step done = step(batches);
    progress.step(done.loss, done.samples);
    stop = signalled_ || steps_done() == stop_after_;
    const bool due = config_.save_every > 0 && steps_done() % config_.save_every == 0;
    if (due && !stop && state_.step < steps_per_epoch_) save(false);
  }
  epoch_seconds_ = seconds_since(start);
  training_seconds_ += epoch_seconds_;
  trained_samples_ += epoch_samples_;
  if (state_.step == steps_per_epoch_) {
    end_epoch(progress);
  } else {
    save(false);
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
    best = metrics.error1() < state_.best_error;
    state_.best_error = std::min(state_.best_error, metrics.error1());
  }
  test_metrics_ = measure(test_);
  if (best) state_.best_epoch = state_.epoch, state_.best_test = *test_metrics_;
  state_.waited = state_.epoch - state_.best_epoch;
  line["test_loss"] = rounded(test_metrics_->loss());
  line["test_error1"] = rounded(test_metrics_->error1());
  line["test_error5"] = rounded(test_metrics_->error5());
  return summary + fmt::format("  test error@1 {:.2f}%", test_metrics_->error1());
}

void Trainer::end_epoch(Progress& progress) {
  const double lr = learning_rate(schedule_, steps_done() - 1, steps_per_epoch_);
  const Metrics train = sum_over(comm_, epoch_metrics_);
  if (train.samples() == 0) settle();
  check(train.samples() > 0, "train", "no step of epoch {} was finite: lower --lr ({})", state_.epoch + 1,
        config_.lr);
  train_metrics_ = train;
  std::ranges::fill(epoch_metrics_, Metrics());
  ++state_.epoch;
  state_.step = 0;
  nlohmann::ordered_json line = {{"epoch", state_.epoch},
                                 {"step", steps_done()},
                                 {"lr", lr},
                                 {"train_loss", rounded(train.loss())},
                                 {"train_error1", rounded(train.error1())},
                                 {"skipped_steps", state_.skipped}};
  std::string summary = fmt::format("loss {:.4f}  error@1 {:.2f}%", train.loss(), train.error1());
  bool best = false;
  test_metrics_.reset();
  if (state_.epoch == config_.epochs || (config_.eval_every > 0 && state_.epoch % config_.eval_every == 0)) {
    summary += measure(line, best);
  }
  line["seconds"] = rounded(epoch_seconds_);
  line["samples_per_second"] = rounded(static_cast<double>(epoch_samples_) / epoch_seconds_);
  line["wire_bytes_per_step"] = wire_bytes_per_step();
  if (model_.parameters.device() == Device::cuda) line["host_seconds_per_step"] = host_seconds_per_step();
  if (search_seconds_ > 0) line["search_seconds"] = rounded(search_seconds_);
  if (directory_)
    on_root(comm_, [&] {
      const SaveTimes times = saver_->take_times();
      saving_ += times;
      line["saving"] = to_json(times);
      saver_->attempt([&] { metrics_file_.append(line); });
    });
  save(best);
  progress.end_epoch(summary);
}

std::int64_t Trainer::wire_bytes_per_step() const {
  const std::int64_t steps = steps_done() - first_step_;
  return steps == 0 ? 0 : (comm_.traffic().sum.bytes - first_bytes_) / steps;
}

double Trainer::host_seconds_per_step() const {
  const std::int64_t steps = steps_done() - first_step_;
  return steps == 0 || model_.parameters.device() == Device::cpu
             ? 0
             : queueing_seconds_ / static_cast<double>(steps);
}

PrefetchOptions Trainer::from_here() const {
  return {.epoch = state_.epoch,
          .step = state_.step,
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
    Feed batches(train_, from_here(), model_.parameters.device());
    while (!complete() && run_epoch(batches, progress)) {
    }
  }
  TrainResult result{.ending = complete()   ? Ending::complete
                               : signalled_ ? Ending::signal
                                            : Ending::stop_after};
  if (result.ending != Ending::signal) measure_result(result);
  if (directory_)
    on_root(comm_, [&] {
      saver_->finish();
      saving_ += saver_->take_times();
    });
  result.train = train_metrics_;
  result.epochs = state_.epoch;
  result.steps = steps_done();
  result.skipped = state_.skipped;
  result.seconds = seconds_since(start);
  result.samples_per_second =
      training_seconds_ > 0 ? static_cast<double>(trained_samples_) / training_seconds_ : 0;
  result.wire_bytes_per_step = wire_bytes_per_step();
  result.search_seconds = search_seconds_;
  result.saving = saving_;
  result.host_seconds_per_step = host_seconds_per_step();
  result.replayed_steps = replayed_steps();
  return result;
}

void Trainer::measure_result(TrainResult& result) {
  if (config_.patience > 0 && complete()) {
    result.best_epoch = state_.best_epoch;
    result.test = state_.best_test;
    result.stopped_early = state_.epoch < config_.epochs;
    return;
  }
  if (!test_metrics_ || state_.step > 0) {
    const AverageInUse in_use(average_, model_.parameters);
    const AveragedStatistics averaged(comm_, model_.parameters);
    test_metrics_ = measure(test_);
  }
  result.test = test_metrics_;
}

void Trainer::save(bool best) {
  if (!directory_) return;
  const Span span("checkpoint");
  Archive archive;
  store_own(own(), archive);
  {
    const AveragedStatistics averaged(comm_, model_.parameters);
    store_model(model_, dataset_.facts, config_text_, archive);
  }
  store_optimizer(*optimizer_, model_.parameters, archive);
  store_average(comm_, average_, model_.parameters, archive);
  store_state(state_, steps_per_epoch_, archive);
  archive.attributes["command"] = command_;
  archive.attributes["random/generator"] = "philox4x32-10";
  archive.attributes["random/seed"] = config_.seed;
  archive.attributes["trainer/position"] = state_.step * config_.batch;
  archive.attributes["trainer/learning_rate"] = learning_rate(schedule_, steps_done(), steps_per_epoch_);
  archive.attributes["trainer/data"] = fmt::format("{}", fmt::join(data_, "\n"));
  on_root(comm_, [&] { saver_->save(archive, steps_done(), best); });
}

void Trainer::check_same_data(const Archive& archive) const {
  if (!archive.attributes.contains("trainer/data")) return;  // of an older program
  std::istringstream before(archive.attribute<std::string>("trainer/data"));
  std::string was;
  for (const std::string& now : data_)
    check_usage(std::getline(before, was) && was == now, "train",
                "--resume: it was trained on {}, found {}: has the data changed?", was, now);
}

void Trainer::settle() {
  if (directory_) on_root(comm_, [&] { saver_->wait(); });
}

void Trainer::take_up_files(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path before = fs::absolute(path).parent_path();
  const std::string newest = directory_->file("checkpoint.h5");
  std::error_code error;
  if (!fs::exists(newest, error) || fs::equivalent(newest, path, error)) saver_->set_newest(steps_done());
  metrics_file_ = MetricsFile(directory_->file(kMetrics), before / kMetrics, state_.epoch);
  search_seconds_ = metrics_file_.last("search_seconds");
  if (state_.best_epoch > 0 && !fs::exists(before / "best.h5", error))
    warn("{} has no best.h5, which was written after epoch {}: there will be one again after a better epoch",
         before.string(), state_.best_epoch);
}

void Trainer::resume(const Archive& archive, const std::string& path) {
  const InputShape before = stored_facts(archive).input;
  check_usage(before == model_.input(), "train",
              "--resume: it was trained on {}, found {}: has the data changed?", before.text(),
              model_.input().text());
  check_same_data(archive);
  if (archive.attributes.contains("command")) command_ = archive.attribute<std::string>("command");
  restore_model(model_, archive);
  restore_optimizer(*optimizer_, model_.parameters, archive);
  restore_average(average_, model_.parameters, archive);
  state_ = restore_state(archive, steps_per_epoch_);
  check_usage(stop_after_ == 0 || stop_after_ > steps_done(), "train",
              "--stop-after {}: the checkpoint is at step {} already", stop_after_, steps_done());
  check_usage(config_.epochs > state_.epoch || (config_.epochs == state_.epoch && state_.step == 0), "train",
              "--epochs {}: the checkpoint is at step {} of epoch {} already", config_.epochs, state_.step,
              state_.epoch + 1);
  restore_own(own(), archive);
  if (directory_) on_root(comm_, [&] { take_up_files(path); });
}

}  // namespace ssn
