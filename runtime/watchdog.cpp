#include "runtime/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "runtime/liveness.h"
#include "runtime/log.h"

namespace ssn {
namespace {

using Name = std::array<char, 24>;

Name name_from(const char* text) {
  Name name{};
  const std::string_view all = text == nullptr ? "" : text;
  std::copy_n(all.begin(), std::min(all.size(), name.size() - 1), name.begin());
  return name;
}

bool waits(const Pulse& pulse) {
  return pulse.inside[0] != '\0';
}

/// "rank 2 waits", "ranks 0, 1 wait".
std::string subject(const std::vector<int>& ranks, std::string_view one, std::string_view several) {
  constexpr std::size_t kNamed = 8;
  const std::span<const int> named(ranks.data(), std::min(ranks.size(), kNamed));
  const std::string others =
      ranks.size() > kNamed ? fmt::format(" and {} others", ranks.size() - kNamed) : "";
  return fmt::format("rank{} {}{} {}", ranks.size() == 1 ? "" : "s", fmt::join(named, ", "), others,
                     ranks.size() == 1 ? one : several);
}

/// Of the operations that ranks have waited in for a while, the one that comes last; null if none waits. What
/// is known of the others may be a pulse old: they may be on their way after a long wait for the same rank.
const Pulse* furthest(std::span<const RankView> ranks, double timeout) {
  const Pulse* last = nullptr;
  for (const RankView& rank : ranks) {
    const Pulse& pulse = rank.pulse;
    if (waits(pulse) && rank.stuck >= timeout / 5 && (last == nullptr || pulse.entered > last->entered))
      last = &pulse;
  }
  return last;
}

bool silent(const RankView& rank, double timeout) {
  return rank.silent >= timeout && !rank.pulse.last;
}
bool hangs(const RankView& rank, double timeout) {
  return silent(rank, timeout) || (rank.stuck >= timeout && rank.pulse.busy[0] == '\0' && !rank.pulse.last);
}

/// Those that hang and have not come to `goal`. Who waits on the way there waits for one of the others.
std::vector<int> missing(std::span<const RankView> ranks, const Pulse& goal, double timeout) {
  std::vector<int> late, on_the_way;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const Pulse& pulse = ranks[r].pulse;
    if (pulse.entered >= goal.entered || !hangs(ranks[r], timeout)) continue;
    const bool waiting = waits(pulse) && !silent(ranks[r], timeout);
    (waiting ? on_the_way : late).push_back(static_cast<int>(r));
  }
  return late.empty() ? on_the_way : late;
}

/// "rank 0 waits in 'barrier'; ranks 1, 2 wait in 'gather'".
std::string waiting_text(std::span<const RankView> ranks) {
  std::map<std::string, std::vector<int>> places;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (waits(ranks[r].pulse)) places[ranks[r].pulse.inside.data()].push_back(static_cast<int>(r));
  }
  std::vector<std::string> parts;
  for (const auto& [place, who] : places)
    parts.push_back(fmt::format("{} in '{}'", subject(who, "waits", "wait"), place));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

std::string hang_text(std::span<const RankView> ranks, double timeout) {
  const auto is_silent = [&](int r) { return silent(ranks[static_cast<std::size_t>(r)], timeout); };
  const Pulse* goal = furthest(ranks, timeout);
  const std::vector<int> late = goal == nullptr ? std::vector<int>() : missing(ranks, *goal, timeout);
  if (!late.empty()) {
    return fmt::format("{} not come to '{}' for {:g} s: {}; {}", subject(late, "has", "have"),
                       goal->inside.data(), timeout,
                       std::ranges::all_of(late, is_silent) ? "no sign of life (stopped, dead or cut off)"
                                                            : "alive, but it does not get on",
                       waiting_text(ranks));
  }
  std::vector<int> dead;
  for (int r = 0; r < std::ssize(ranks); ++r)
    if (is_silent(r)) dead.push_back(r);
  const std::string waiting = waiting_text(ranks);
  if (!dead.empty())
    return fmt::format("{} shown no sign of life for {:g} s (stopped, dead or cut off){}{}",
                       subject(dead, "has", "have"), timeout, waiting.empty() ? "" : "; ", waiting);
  const bool all = std::ranges::all_of(ranks, [&](const RankView& r) { return hangs(r, timeout); });
  if (!all || waiting.empty()) return "";
  return fmt::format("no rank has got on for {:g} s, though none is missing: {}", timeout, waiting);
}

Watchdog::Operation::Operation(Watchdog* watchdog, const char* name) : watchdog_(watchdog) {
  if (watchdog_ == nullptr) return;
  note_progress();
  outer_ = watchdog_->inside_;
  ++watchdog_->entered_;
  if (outer_ == nullptr) watchdog_->inside_ = name;
}

Watchdog::Operation::~Operation() {
  if (watchdog_ == nullptr) return;
  watchdog_->inside_ = outer_;
  note_progress();
}

Watchdog::Watchdog() {
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "watchdog");
  check_mpi(MPI_Comm_rank(comm_, &rank_), "watchdog");
  check_mpi(MPI_Comm_size(comm_, &size_), "watchdog");
  views_.resize(static_cast<std::size_t>(size_));
  if (rank_ > 0) lines_.resize(1);
  for (int r = 1; rank_ == 0 && r < size_; ++r) lines_.emplace_back().rank = r;
  thread_ = std::thread([this] {
    try {
      run();
    } catch (const std::exception& error) {
      warn("a rank that hangs is not found from now on: {}", error.what());
    }
  });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  try {
    say_goodbye();
  } catch (const std::exception& error) {
    warn("{}", error.what());
  }
  MPI_Comm_free(&comm_);
}

void Watchdog::set_timeout(double seconds) {
  const std::lock_guard lock(mutex_);
  timeout_ = seconds;
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  auto before = Clock::now();
  while (!stop_) {
    const double timeout = timeout_, interval = timeout > 0 ? std::clamp(timeout / 10, 0.05, 0.5) : 0.5;
    changed_.wait_for(lock, std::chrono::duration<double>(interval));
    if (stop_) return;
    lock.unlock();
    const auto now = Clock::now();
    const double passed = std::min(std::chrono::duration<double>(now - before).count(), 2 * interval);
    before = now;
    for (std::size_t r = 0; r < views_.size(); ++r) {
      const bool known = rank_ == 0 || r == 0 || static_cast<int>(r) == rank_;
      if (known) views_[r].silent += passed, views_[r].stuck += passed;
    }
    take(pulse(), views_[static_cast<std::size_t>(rank_)]);
    for (Line& line : lines_) exchange(line, views_[static_cast<std::size_t>(line.rank)]);
    if (timeout > 0) judge(timeout);
    if (timeout > 0 && rank_ == 0) tell_of_the_busy(timeout);
    lock.lock();
  }
}

Pulse Watchdog::pulse() const {
  return {.progress = detail::g_progress,
          .entered = entered_,
          .inside = name_from(inside_),
          .busy = name_from(detail::g_busy)};
}

void Watchdog::take(const Pulse& pulse, RankView& view) {
  if (pulse.progress != view.pulse.progress) view.stuck = 0;
  view.silent = 0;
  view.pulse = pulse;
}

void Watchdog::exchange(Line& line, RankView& view) {
  int done = 1;
  while (!line.received.last) {
    if (line.receiving == MPI_REQUEST_NULL)
      check_mpi(MPI_Irecv(&line.received, sizeof(Pulse), MPI_BYTE, line.rank, 0, comm_, &line.receiving),
                "watchdog");
    check_mpi(MPI_Test(&line.receiving, &done, MPI_STATUS_IGNORE), "watchdog");
    if (!done) break;
    take(line.received, view);
  }
  check_mpi(MPI_Test(&line.sending, &done, MPI_STATUS_IGNORE), "watchdog");
  if (!done) return;  // whoever takes no messages gets no more
  line.sent = pulse();
  check_mpi(MPI_Isend(&line.sent, sizeof(Pulse), MPI_BYTE, line.rank, 0, comm_, &line.sending), "watchdog");
}

void Watchdog::judge(double timeout) {
  // Without rank 0 the next one speaks; the others only where that is gone as well.
  constexpr double kGrace = 3;
  if (rank_ > 0 && views_[0].silent < timeout + (rank_ > 1 ? kGrace : 0)) return;
  const std::string text = hang_text(views_, timeout);
  if (text.empty()) return;
  write_stderr(fmt::format("error: {}\n", text));
  std::fflush(nullptr);
  std::signal(SIGALRM, SIG_DFL);
  alarm(5);  // should MPI be what hangs
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

void Watchdog::tell_of_the_busy(double timeout) {
  const Pulse* goal = furthest(views_, timeout);
  bool any = false;
  for (std::size_t r = 0; r < views_.size() && goal != nullptr; ++r) {
    const auto& [pulse, quiet, stuck] = views_[r];
    if (pulse.busy[0] == '\0' || stuck < timeout || pulse.entered >= goal->entered) continue;
    any = true;
    if (stuck < patience_) continue;
    warn("rank {} {} for {:.0f} s, and the others wait for it", r, pulse.busy.data(), stuck);
    patience_ = 2 * stuck;
  }
  if (!any) patience_ = timeout;
}

/// So that no message is left.
void Watchdog::say_goodbye() {
  Pulse last = pulse();
  last.last = true;
  for (Line& line : lines_) {
    check_mpi(MPI_Wait(&line.sending, MPI_STATUS_IGNORE), "watchdog");
    check_mpi(MPI_Send(&last, sizeof(Pulse), MPI_BYTE, line.rank, 0, comm_), "watchdog");
  }
  for (Line& line : lines_) {
    while (!line.received.last || line.receiving != MPI_REQUEST_NULL) {
      if (line.receiving == MPI_REQUEST_NULL)
        check_mpi(MPI_Irecv(&line.received, sizeof(Pulse), MPI_BYTE, line.rank, 0, comm_, &line.receiving),
                  "watchdog");
      check_mpi(MPI_Wait(&line.receiving, MPI_STATUS_IGNORE), "watchdog");
    }
  }
}

}  // namespace ssn
