#include "tools/training/saver.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <span>

#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/parallel.h"
#include "runtime/trace.h"
#include "tools/training/metrics.h"

namespace ssn {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kNewest = "checkpoint.h5";
constexpr const char* kBest = "best.h5";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Gives the file another name; a copy where the file system has no links, or the file is behind one.
void add_name(const std::string& file, const std::string& name) {
  std::error_code error;
  if (fs::equivalent(file, name, error)) return;
  replace_file(name, [&](const std::string& temporary) {
    fs::remove(temporary, error);
    fs::create_hard_link(fs::canonical(file), temporary, error);
    if (error) fs::copy_file(file, temporary, fs::copy_options::overwrite_existing, error);
    check(!error, "write", "{}: cannot copy {}: {}", name, file, error.message());
  });
}

}  // namespace

nlohmann::ordered_json to_json(const SaveTimes& times) {
  return {{"count", times.count},
          {"copy_seconds", rounded(times.copy_seconds)},
          {"wait_seconds", rounded(times.wait_seconds)},
          {"write_seconds", rounded(times.write_seconds)},
          {"bytes", times.bytes}};
}

SaveTimes& operator+=(SaveTimes& sum, const SaveTimes& times) {
  sum.count += times.count;
  sum.copy_seconds += times.copy_seconds;
  sum.wait_seconds += times.wait_seconds;
  sum.write_seconds += times.write_seconds;
  sum.bytes += times.bytes;
  return sum;
}

Saver::Saver(const RunDirectory& directory, const Options& options)
    : directory_(directory), options_(options) {}

Saver::~Saver() {
  wait();  // the worker's destructor would drop what it has not begun
  if (failed_) warn("{}", failure_);
}

void Saver::copy(const Archive& archive) {
  struct Piece {
    char* to;
    const char* from;
    std::size_t bytes;
  };
  std::vector<Piece> pieces;  // small enough for all threads to have their share
  constexpr std::size_t kPiece = 1 << 20;
  std::erase_if(snapshot_.tensors, [&](const auto& entry) { return !archive.tensors.contains(entry.first); });
  for (const auto& [name, tensor] : archive.tensors) {
    Tensor& mine = snapshot_.tensors[name];
    if (!mine || mine.shape() != tensor.shape() || mine.dtype() != tensor.dtype())
      mine = Tensor::empty(tensor.shape(), tensor.dtype());
    if (tensor.device() != Device::cpu) mine.copy_from(tensor);
    const std::size_t bytes = tensor.device() == Device::cpu ? tensor.bytes() : 0;
    for (std::size_t at = 0; at < bytes; at += kPiece)
      pieces.push_back({static_cast<char*>(mine.raw()) + at, static_cast<const char*>(tensor.raw()) + at,
                        std::min(kPiece, bytes - at)});
  }
  parallel_for(std::ssize(pieces), 1, [&](std::int64_t begin, std::int64_t end) {
    for (const Piece& piece :
         std::span(pieces).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)))
      std::memcpy(piece.to, piece.from, piece.bytes);
  });
  snapshot_.attributes = archive.attributes;
}

void Saver::save(const Archive& archive, std::int64_t step, bool best) {
  const auto begin = Clock::now();
  wait();
  check();
  if (unwritten_ && unwritten_->best) {
    start();
    wait();
    check();
    if (unwritten_) return;  // nothing newer before it
  }
  const auto copying = Clock::now();
  copy(archive);
  add({.copy_seconds = seconds_since(copying),
       .wait_seconds = std::chrono::duration<double>(copying - begin).count()});
  unwritten_ = {step, best};
  start();
}

void Saver::start() {
  worker_.add([this] {
    try {
      write(*unwritten_);
      unwritten_.reset();
    } catch (const std::exception& error) {
      failure_ = fmt::format("the checkpoint of step {} is not saved: {}", unwritten_->step, error.what());
      failed_ = true;
    }
  });
}

void Saver::write(const Request& request) {
  const Span span("write checkpoint");
  const auto begin = Clock::now();
  const std::string newest = directory_.file(kNewest);
  if (request.best) save_checkpoint(directory_.file(kBest), snapshot_, options_.layout);
  std::error_code ignored;
  if (options_.keep > 1 && newest_ && *newest_ < request.step && fs::exists(newest, ignored))
    add_name(newest, directory_.file(kept_name(*newest_)));
  if (request.best)
    add_name(directory_.file(kBest), newest);
  else
    save_checkpoint(newest, snapshot_, options_.layout);
  newest_ = request.step;
  if (options_.keep > 1) remove_older(request.step);
  const auto bytes = static_cast<std::int64_t>(fs::file_size(newest));
  add({.count = 1, .write_seconds = seconds_since(begin), .bytes = bytes});
}

/// Those that are not older are of a run that went on from before this step already.
void Saver::remove_older(std::int64_t newest) const {
  std::int64_t kept = 1;
  std::error_code ignored;
  for (const std::int64_t step : kept_steps(directory_.path()))
    if (step >= newest || ++kept > options_.keep) fs::remove(directory_.file(kept_name(step)), ignored);
}

void Saver::check() {
  if (!failed_.exchange(false)) return;
  const std::string next =
      newest_ ? fmt::format("the one of step {} stands", *newest_) : "files are as they were";
  ssn::check(options_.goes_on, "train",
             "{}; {}: make it possible and go on with --resume, or train on through such failures with "
             "--on-save-failure continue",
             failure_, next);
  warn("{}; {}, and the next save tries again", failure_, next);
}

void Saver::attempt(const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    if (!options_.goes_on) throw;
    warn("{}", error.what());
  }
}

void Saver::finish() {
  wait();
  if (unwritten_ && options_.goes_on) {
    check();
    start();
    wait();
  }
  if (!unwritten_) return;
  failed_ = false;
  fail("train", "{}; {}", failure_,
       newest_ ? fmt::format("the one of step {} stands: go on from it with --resume", *newest_)
               : "there is none");
}

void Saver::add(const SaveTimes& times) {
  const std::lock_guard lock(mutex_);
  times_ += times;
}

SaveTimes Saver::take_times() {
  const std::lock_guard lock(mutex_);
  return std::exchange(times_, {});
}

}  // namespace ssn
