#include "runtime/worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace ssn {
namespace {

TEST(Worker, DoesJobsInTheirOrderOnAThreadOfItsOwn) {
  Worker worker("test");
  std::vector<int> done, expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  std::thread::id thread = std::this_thread::get_id();
  for (const int i : expected)
    worker.add([&, i] {
      thread = std::this_thread::get_id();
      done.push_back(i);
    });
  worker.wait();
  EXPECT_EQ(done, expected);
  EXPECT_NE(thread, std::this_thread::get_id());
  worker.wait();  // there is nothing to wait for
}

TEST(Worker, WaitsForTheJobThatIsBeingDone) {
  Worker worker("test");
  std::atomic<bool> done = false;
  worker.add([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done = true;
  });
  worker.wait();
  EXPECT_TRUE(done);
}

TEST(Worker, GivesAnErrorToWhoeverWaitsAndDropsWhatWasBehindIt) {
  Worker worker("test");
  std::atomic<bool> release = false, later = false;
  worker.add([&] {
    while (!release) std::this_thread::yield();
    throw std::runtime_error("torn cable");
  });
  worker.add([&] { later = true; });
  release = true;
  EXPECT_THROW(worker.wait(), std::runtime_error);
  EXPECT_FALSE(later);
  worker.add([&] { later = true; });
  worker.wait();
  EXPECT_TRUE(later) << "it goes on once the error is known";
}

TEST(Worker, EndsWithJobsLeft) {
  std::atomic<int> done = 0;
  {
    Worker worker("test");
    for (int i = 0; i < 100; ++i)
      worker.add([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ++done;
      });
  }
  EXPECT_LE(done, 100);
}

}  // namespace
}  // namespace ssn
