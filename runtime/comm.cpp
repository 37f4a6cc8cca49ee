#include "runtime/comm.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>
#include <utility>

#include "runtime/config.h"
#include "runtime/error.h"
#include "runtime/launcher.h"
#include "runtime/log.h"
#include "runtime/queue.h"

namespace ssn {

void Comm::count(Traffic& traffic, std::size_t bytes) {
  if (size_ == 1) return;
  ++traffic.calls;
  traffic.bytes += static_cast<std::int64_t>(bytes);
}

std::int64_t Comm::payload(std::int64_t count, DType dtype) const {
  return count * static_cast<std::int64_t>(size_of(dtype == DType::f32 ? wire_ : dtype));
}

SumHandle Comm::start(void* data, std::int64_t count, DType dtype, Device device) {
  const std::int64_t bytes = size_ == 1 ? 0 : payload(count, dtype);
  this->count(traffic_.sum, static_cast<std::size_t>(bytes));
  const SumHandle handle{++started_, bytes};
  if (count > 0) sum(handle.id, data, count, dtype, device);
  return handle;
}

Traffic Comm::record_sums(const std::function<void()>& work) {
  const Traffic before = traffic_.sum;
  try {
    work();
  } catch (...) {
    traffic_.sum = before;
    throw;
  }
  const Traffic after = std::exchange(traffic_.sum, before);
  return {after.calls - before.calls, after.bytes - before.bytes};
}

void Comm::repeat_sums(const Traffic& recorded) {
  traffic_.sum.calls += recorded.calls;
  traffic_.sum.bytes += recorded.bytes;
}

SumHandle Comm::start_sum(const Tensor& data) {
  check(data.dtype() == DType::f32 || data.dtype() == DType::f64, "sum over ranks",
        "needs f32 or f64, found {}", name_of(data.dtype()));
  if (sums_on(data.device())) {
    summing_.push_back(data);
    return start(data.raw(), data.size(), data.dtype(), data.device());
  }
  const Tensor host = data.to(Device::cpu);
  const SumHandle handle = start(host.raw(), host.size(), host.dtype(), Device::cpu);
  finish(handle.id);
  data.copy_from(host);
  return handle;
}

namespace {

/// What a rank takes for its GPU.
struct Claim {
  int devices = 0;  // that it sees
  int machine = 0;
  std::array<char, 32> bus{};        // the device's address on its machine
  std::array<char, 4096> missing{};  // what it lacks to use one; empty if nothing
};

void check_claims(std::span<const Claim> claims) {
  const auto is = [](const Claim& a, const Claim& b) { return a.machine == b.machine && a.bus == b.bus; };
  for (std::size_t r = 0; r < claims.size(); ++r) {
    check_usage(claims[r].missing.front() == '\0', "use device", "rank {} {}; or use --device cpu", r,
                claims[r].missing.data());
    for (std::size_t q = 0; q < r; ++q)
      check_usage(
          !is(claims[q], claims[r]), "use device",
          "ranks {} and {} would share the CUDA device {}: of their machine's devices they see {}. Start "
          "one rank a device, each of which sees all of its machine's devices or one of its own "
          "(CUDA_VISIBLE_DEVICES)",
          q, r, claims[r].bus.data(), claims[r].devices);
  }
}

}  // namespace

void Comm::use_device(Device device) {
  if (device == Device::cpu) return;
  Claim mine{.machine = machine_};
  if constexpr (build::has_cuda) {
    const auto write = [](const std::string& text, auto& to) {
      std::copy_n(text.begin(), std::min(text.size(), to.size() - 1), to.begin());
    };
    mine.devices = cuda_device_count();
    const int device = mine.devices > 0 ? local_rank_ % mine.devices : 0;
    const std::string missing = missing_for_cuda(device, size_ > 1 && sums_on(Device::cuda));
    write(missing, mine.missing);
    if (missing.empty()) write(use_cuda_device(device), mine.bus);
    check_claims(allgather(mine));
  } else {
    fail_usage("use device", "this build has no CUDA: use --device cpu, or build where nvcc is found");
  }
}

void Comm::broadcast(std::span<std::byte> data, int root) {
  check(root >= 0 && root < size_, "broadcast", "the root is rank {}, there are {} ranks", root, size_);
  count(traffic_.other, data.size());
  if (!data.empty()) broadcast_bytes(data.data(), data.size(), root);
}

void Comm::broadcast(const Tensor& data, int root) {
  if (size_ == 1) return;
  const Tensor host = data.to(Device::cpu);
  broadcast(std::span(static_cast<std::byte*>(host.raw()), host.bytes()), root);
  if (data.device() != Device::cpu) data.copy_from(host);
}

void Comm::broadcast(std::string& text, int root) {
  std::uint64_t bytes = text.size();
  broadcast(std::as_writable_bytes(std::span(&bytes, 1)), root);
  text.resize(bytes);
  broadcast(std::as_writable_bytes(std::span(text)), root);
}

std::vector<std::byte> Comm::collect(std::span<const std::byte> data, bool everywhere) {
  count(traffic_.other, data.size());
  const bool receives = everywhere || rank_ == 0;
  std::vector<std::byte> all(receives ? data.size() * static_cast<std::size_t>(size_) : 0);
  if (!data.empty()) gather_bytes(data.data(), data.size(), all.data(), everywhere);
  return all;
}

void Comm::sum_in_rank_order(std::span<double> values) {
  if (size_ == 1) return;
  const std::vector<std::byte> all = allgather(std::as_bytes(values));
  std::vector<double> one(values.size());
  for (int r = 0; r < size_; ++r) {
    const std::byte* from = all.data() + static_cast<std::size_t>(r) * values.size_bytes();
    std::copy(from, from + values.size_bytes(), reinterpret_cast<std::byte*>(one.data()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = r == 0 ? one[i] : values[i] + one[i];
  }
}

double Comm::sum_in_rank_order(double value) {
  sum_in_rank_order(std::span(&value, 1));
  return value;
}

std::uint32_t Comm::agree(std::uint32_t flags) {
  count(traffic_.control, sizeof flags);
  return or_flags(flags);
}

void SoloComm::abort(std::string_view message, int exit_code) {
  write_stderr(fmt::format("error: {}\n", message));
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

namespace {

/// How a rank's body ended; no message unless by an exception.
struct Outcome {
  int code = 0;
  std::string message;
};

Outcome outcome_of(const std::function<int()>& body) {
  const char* debug = std::getenv("SSN_DEBUG");
  const auto text = [&](const Error& e) {
    return debug && std::string_view(debug) == "1" ? fmt::format("{} ({})", e.what(), e.where())
                                                   : std::string(e.what());
  };
  try {
    return {body(), ""};
  } catch (const UsageError& e) {
    return {2, text(e)};
  } catch (const Error& e) {
    return {1, text(e)};
  } catch (const std::bad_alloc&) {
    return {1, "no memory left: lower --batch"};
  } catch (const std::exception& e) {
    return {1, fmt::format("{}", e.what())};
  }
}

/// One line a different message, with the ranks that found it unless all did.
void print_errors(const std::vector<Outcome>& outcomes) {
  std::map<std::string, std::vector<int>> ranks_of;
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    if (!outcomes[r].message.empty()) ranks_of[outcomes[r].message].push_back(static_cast<int>(r));
  }
  for (const auto& [message, ranks] : ranks_of) {
    if (ranks.size() == outcomes.size())
      write_stderr(fmt::format("error: {}\n", message));
    else
      write_stderr(fmt::format("error on rank {}: {}\n", fmt::join(ranks, ", "), message));
  }
}

}  // namespace

int run_ranks(Comm& comm, const std::function<int()>& body) {
  // Ranks that find the same error come here within moments of each other; the others may be anywhere, for
  // ever.
  constexpr double kPatience = 3;
  const Outcome mine = outcome_of(body);
  const auto texts =
      comm.meet(fmt::format("{} {}", mine.code, mine.message), mine.message.empty() ? -1 : kPatience);
  if (!texts) comm.abort(mine.message, mine.code);
  std::vector<Outcome> all;
  int code = 0;
  for (const std::string& text : *texts) {
    const std::size_t blank = text.find(' ');
    all.push_back({std::stoi(text.substr(0, blank)), text.substr(blank + 1)});
    code = std::max(code, all.back().code);
  }
  if (comm.rank() == 0) print_errors(all);
  return code;
}

int run_ranks(const std::function<int(Comm&)>& body) {
  std::unique_ptr<Comm> comm;
  const Outcome made = outcome_of([&] {
    comm = make_comm();
    return 0;
  });
  if (comm) return run_ranks(*comm, [&] { return body(*comm); });
  // A wrong environment is wrong on all ranks, and there is no communicator to find out who is the first. The
  // others let it speak: when one process has ended, the launcher ends the rest.
  constexpr std::chrono::seconds kHeadStart{1};
  if (made.code != 2 || launched_first())
    print_errors({made});
  else
    std::this_thread::sleep_for(kHeadStart);
  return made.code;
}

}  // namespace ssn
