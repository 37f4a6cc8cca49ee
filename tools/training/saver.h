#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runtime/checkpoint.h"
#include "runtime/worker.h"
#include "tools/training/run_directory.h"

namespace ssn {

/// What the saves of a run took.
struct SaveTimes {
  std::int64_t count = 0;    // that are written
  double copy_seconds = 0;   // the training paused for these,
  double wait_seconds = 0;   // and for the save before, where that was not written yet
  double write_seconds = 0;  // beside the training
  std::int64_t bytes = 0;    // of the files
};
SaveTimes& operator+=(SaveTimes& sum, const SaveTimes& times);
nlohmann::ordered_json to_json(const SaveTimes& times);

/// Writes the checkpoints of a run while its training goes on: of each it takes a copy, which a thread
/// writes. checkpoint.h5 is always the newest; best.h5 the best, in place before a checkpoint that knows of
/// it; checkpoint-<step>.h5 the ones before, with keep > 1. Each takes its name as a whole file, so that
/// whenever the program is killed there is a whole checkpoint.h5, the old one or the new one.
///
/// A write that fails leaves the files as they were. `stop`: the next call of check() or save() throws that.
/// `go on`: it warns, and the next save tries again; what would have been best.h5 comes before anything
/// newer.
class Saver {
 public:
  struct Options {
    std::int64_t keep = 1;  // checkpoints in all, beside best.h5; at least 1
    bool goes_on = false;   // whether the training does where a write fails
    Layout layout = Layout::checked;
  };
  /// Outlived by `directory`.
  Saver(const RunDirectory& directory, const Options& options);
  /// Waits for what is being written.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// checkpoint.h5 is of this step already: the run goes on from it.
  void set_newest(std::int64_t step) { newest_ = step; }
  /// Copies the archive once the save before is written, and has the copy written.
  void save(const Archive& archive, std::int64_t step, bool best);
  /// Whether a write has failed that check() has not seen.
  bool failed() const { return failed_; }
  void check();
  /// Does something else that writes, and takes its failure in the same way.
  void attempt(const std::function<void()>& write);
  /// Until what was handed over is written, or has failed.
  void wait() { worker_.wait(); }
  /// At the end of the run: an Error if its last state is not written, after another try.
  void finish();
  /// Since the last call.
  SaveTimes take_times();

 private:
  struct Request {
    std::int64_t step;
    bool best;
  };
  void start();
  void copy(const Archive& archive);
  void write(const Request& request);
  void add(const SaveTimes& times);
  void remove_older(std::int64_t newest) const;

  const RunDirectory& directory_;
  Options options_;
  // The thread's while it writes, otherwise the caller's.
  Archive snapshot_;  // kept from save to save, so that memory stays as it is
  std::optional<Request> unwritten_;
  std::optional<std::int64_t> newest_;  // step of checkpoint.h5, where that is known
  std::string failure_;
  std::mutex mutex_;
  SaveTimes times_;  // under the mutex
  std::atomic<bool> failed_{false};
  Worker worker_{"checkpoints"};  // last: it uses all others
};

}  // namespace ssn
