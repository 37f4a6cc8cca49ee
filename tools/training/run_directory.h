#pragma once
#include <string>

#include "runtime/comm.h"

namespace ssn {

/// The directory of a run: config.toml (what is needed to repeat it), plan.json, metrics.jsonl (a line an
/// epoch), checkpoint.h5 (the last) and best.h5 (the best on a validation set). Only rank 0 touches it. All
/// functions are collective, and fail on all ranks alike.
class RunDirectory {
 public:
  struct Request {
    std::string path;     // empty: that of `resume`, or runs/<date>-<network>-<n>
    std::string resume;   // the checkpoint that the run goes on from, or empty
    std::string network;  // for the name
    bool overwrite = false;
  };
  /// Refuses a directory that holds a run, unless that is resumed or to be overwritten; then its files are
  /// removed. Creates it otherwise.
  RunDirectory(Comm& comm, const Request& request);

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  void write(Comm& comm, std::string_view name, const std::string& text) const;

 private:
  std::string path_;
};

}  // namespace ssn
