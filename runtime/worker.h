#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace ssn {

/// A thread that does jobs one after another, in the order they were given.
class Worker {
 public:
  /// `name` is the thread's in traces; a literal.
  explicit Worker(const char* name) : thread_([this, name] { run(name); }) {}
  /// Waits for the job that is being done; those behind it are dropped.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void add(std::function<void()> job);
  /// Until all are done. Throws what a job threw; those behind it were dropped.
  void wait();

 private:
  void run(const char* name);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::exception_ptr error_;
  bool busy_ = false, stop_ = false;
  std::thread thread_;  // last: it uses all others
};

}  // namespace ssn
