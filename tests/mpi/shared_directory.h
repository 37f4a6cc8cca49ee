#pragma once
#include <optional>
#include <string>

#include "tests/mpi/ranks.h"
#include "tests/training_run.h"

namespace ssn {

/// The same directory on all ranks; rank 0 removes it.
class SharedDirectory {
 public:
  explicit SharedDirectory(const std::string& name) {
    if (test_comm().rank() == 0) own_.emplace(name), path_ = *own_ / "";
    test_comm().broadcast(path_);
  }
  ~SharedDirectory() { test_comm().barrier(); }
  SharedDirectory(const SharedDirectory&) = delete;
  SharedDirectory& operator=(const SharedDirectory&) = delete;
  std::string operator/(const std::string& name) const { return path_ + name; }

 private:
  std::optional<test::TemporaryDirectory> own_;
  std::string path_;
};

}  // namespace ssn
