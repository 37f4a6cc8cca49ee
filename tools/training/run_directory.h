#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm.h"

namespace ssn {

/// The directory of a run: config.toml (what is needed to repeat it), mapping.json (if it was learned),
/// plan.json, metrics.jsonl (a line an epoch), checkpoint.h5 (the last), checkpoint-<step>.h5 (those before,
/// with --keep) and best.h5 (the best on a validation set). Only rank 0 touches it. All functions are
/// collective, and fail on all ranks alike.
class RunDirectory {
 public:
  struct Request {
    std::string path;     // empty: that of `resume`, or runs/<date>-<network>-<n>
    std::string resume;   // the checkpoint that the run goes on from, or empty
    std::string network;  // for the name
    std::string mapping;  // of --mapping: if this is a file in the directory, it stays there
    bool overwrite = false;
  };
  /// Creates the directory, or refuses one that holds a run, unless that run is to go on, or to be
  /// overwritten: then its files are removed. What a search left without a training is no run. While this
  /// lives, no other program can open the directory. What a program that was killed had begun to write is
  /// removed.
  RunDirectory(Comm& comm, const Request& request);

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  /// What a run has that goes on from `checkpoint` in another directory and may not write again: that
  /// checkpoint, best.h5 and mapping.json.
  void take_over(Comm& comm, const std::string& checkpoint) const;
  void write(Comm& comm, std::string_view name, const std::string& text) const;

 private:
  std::string path_;
  std::shared_ptr<void> lock_;  // of rank 0
};

/// checkpoint-<step>.h5
std::string kept_name(std::int64_t step);
/// The steps of the checkpoints that a directory has under such names, the latest first.
std::vector<std::int64_t> kept_steps(const std::string& directory);
/// The checkpoint that --resume names: of a directory its checkpoint.h5, and if it has none a UsageError that
/// says what it has.
std::string find_checkpoint(const std::string& resume);

}  // namespace ssn
