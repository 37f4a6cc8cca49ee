#include "runtime/comm.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>

#include "runtime/binding.h"
#include "runtime/error.h"

namespace ssn {
namespace {

TEST(SoloComm, IsTheIdentityAndCountsNothing) {
  SoloComm comm;
  EXPECT_EQ(comm.rank(), 0);
  EXPECT_EQ(comm.size(), 1);
  EXPECT_EQ(comm.local_size(), 1);
  const Tensor t = Tensor::over(comm.allocate(37 * sizeof(float)), Shape{37}, DType::f32);
  std::iota(t.data<float>(), t.data<float>() + 37, 1.5f);
  const SumHandle handle = comm.start_sum(t);
  EXPECT_EQ(handle.bytes, 0);
  comm.wait(handle);
  comm.wait_all();
  for (int i = 0; i < 37; ++i) EXPECT_EQ(t.data<float>()[i], 1.5f + static_cast<float>(i)) << i;
  EXPECT_EQ(comm.sum_in_rank_order(0.1), 0.1);
  EXPECT_EQ(comm.agree(5u), 5u);
  EXPECT_EQ(comm.allgather(std::int64_t{7}), std::vector<std::int64_t>{7});
  std::string text = "kept";
  comm.broadcast(text);
  comm.broadcast(t);
  comm.barrier();
  EXPECT_EQ(text, "kept");
  EXPECT_EQ(comm.traffic().sum.bytes + comm.traffic().control.bytes + comm.traffic().other.bytes, 0);
  EXPECT_EQ(comm.traffic().sum.calls + comm.traffic().control.calls + comm.traffic().other.calls, 0);
}

TEST(SoloComm, RefusesWhatCannotBeSummed) {
  SoloComm comm;
  EXPECT_THROW(comm.start_sum(Tensor::zeros(Shape{3}, DType::i32)), Error);
  std::string text;
  EXPECT_THROW(comm.broadcast(text, 1), Error);
}

/// What run_ranks returns and prints for a body.
std::pair<int, std::string> run(const std::function<int()>& body) {
  SoloComm comm;
  testing::internal::CaptureStderr();
  const int code = run_ranks(comm, body);
  return {code, testing::internal::GetCapturedStderr()};
}

TEST(RunRanks, TurnsExceptionsIntoOneMessageAndAnExitCode) {
  EXPECT_EQ(run([] { return 0; }), std::pair(0, std::string()));
  EXPECT_EQ(run([] { return 75; }), std::pair(75, std::string()));
  EXPECT_EQ(run([]() -> int { fail_usage("budget", "it is {}", -1); }),
            std::pair(2, std::string("error: [budget] it is -1\n")));
  EXPECT_EQ(run([]() -> int { fail("read", "no such file"); }),
            std::pair(1, std::string("error: [read] no such file\n")));
  EXPECT_EQ(run([]() -> int { throw std::runtime_error("other"); }),
            std::pair(1, std::string("error: other\n")));
  EXPECT_EQ(run([]() -> int { throw std::bad_alloc(); }).first, 1);
}

TEST(MakeComm, IsSoloWithoutALauncher) {
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (std::getenv(name)) GTEST_SKIP() << "this test runs under a launcher: " << name << " is set";
  EXPECT_EQ(make_comm()->text(), "1 rank");
}

TEST(MakeComm, RefusesTasksOfSrunThatDoNotKnowOfEachOther) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"})
    if (std::getenv(name)) GTEST_SKIP() << "this test runs under a launcher: " << name << " is set";
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  EXPECT_THROW(make_comm(), UsageError);
  setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  EXPECT_EQ(make_comm()->size(), 1);
  unsetenv("SLURM_STEP_NUM_TASKS");
}

TEST(MakeComm, RefusesAnUnknownSum) {
  setenv("SSN_SUM", "ring", 1);
  EXPECT_THROW(make_comm(), UsageError);
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_ranks([](Comm&) { return 0; }), 2);
  EXPECT_NE(testing::internal::GetCapturedStderr().find(
                "SSN_SUM must be window, allreduce or hierarchical, found 'ring'"),
            std::string::npos);
  unsetenv("SSN_SUM");
}

TEST(Binding, ThreadsAreTheShareOfTheNode) {
  EXPECT_EQ(choose_threads({.allowed = 8, .node = 8}).threads, 8);
  EXPECT_EQ(choose_threads({.allowed = 8, .node = 8, .local_ranks = 2, .launched = true}).threads, 4);
  EXPECT_EQ(choose_threads({.allowed = 2, .node = 2, .local_ranks = 3, .launched = true}).threads, 1);
  EXPECT_EQ(choose_threads({.allowed = 4, .node = 16, .local_ranks = 2, .launched = true}).threads, 4);
  EXPECT_EQ(choose_threads({.allowed = 4, .node = 4, .requested = 3}).threads, 3);
  EXPECT_EQ(choose_threads({.allowed = 1, .node = 2, .requested = 2, .launched = true}).threads, 2);
}

TEST(Binding, WarnsOnlyWhereALauncherBoundTheRankToFewerCores) {
  const ThreadChoice bound = choose_threads({.allowed = 1, .node = 2, .launched = true});
  EXPECT_EQ(bound.threads, 1);
  EXPECT_EQ(bound.warning,
            "this rank is bound to 1 core and could use 2: start it with mpirun --bind-to none, or --map-by "
            "slot:PE=2");
  EXPECT_NE(choose_threads({.allowed = 2, .node = 8, .requested = 4, .launched = true}).warning, "");
  EXPECT_EQ(choose_threads({.allowed = 1, .node = 2, .local_ranks = 2, .launched = true}).warning, "");
  EXPECT_EQ(choose_threads({.allowed = 2, .node = 2, .launched = true}).warning, "");
  EXPECT_EQ(choose_threads({.allowed = 1, .node = 1, .requested = 4}).warning, "")
      << "no launcher: the user's own wish";
}

TEST(Binding, ReadsTheMachine) {
  setenv("OMP_NUM_THREADS", "3,2", 1);
  const Placement p = find_placement(2);
  unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(p.requested, 3);
  EXPECT_EQ(p.local_ranks, 2);
  EXPECT_GE(p.allowed, 1);
  EXPECT_GE(p.node, p.allowed);
}

}  // namespace
}  // namespace ssn
