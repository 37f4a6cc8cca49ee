#include "runtime/trial.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <new>

#include "runtime/error.h"
#include "runtime/flavour.h"
#include "runtime/hdf5_file.h"

namespace ssn {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kDone = "done";
constexpr rlim_t kMiB = 1 << 20;

struct Limits {
  rlim_t seconds, bytes;      // of computing; of memory
  std::chrono::seconds wall;  // should it wait for something that never comes
};

Limits limits_for(const std::string& path, int seconds) {
  struct stat status {};
  const rlim_t size = ::stat(path.c_str(), &status) == 0 ? static_cast<rlim_t>(status.st_size) : 0;
  return {.seconds = static_cast<rlim_t>(seconds) + size / (16 * kMiB),
          .bytes = 256 * kMiB + 64 * size,
          .wall = std::chrono::seconds(60 + size / kMiB)};
}

void limit(int what, rlim_t most) {
  const rlimit limits{most, most};
  ::setrlimit(static_cast<__rlimit_resource>(what), &limits);
}

rlim_t address_space() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

/// What the child does; `out` takes kDone or an error's message.
[[noreturn]] void be_child(int out, const Limits& limits, const std::function<void()>& read) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // not to outlive a parent that is killed
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGINT, SIGTERM, SIGXCPU})
    std::signal(signal, SIG_DFL);  // handlers of MPI and sanitizers would print
  if (const int null = ::open("/dev/null", O_WRONLY); null >= 0) ::dup2(null, STDERR_FILENO);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, limits.seconds);
  if (!build::exact_allocation) limit(RLIMIT_AS, address_space() + limits.bytes);
  std::string text(kDone);
  try {
    read();
  } catch (const std::bad_alloc&) {
    text.clear();
  } catch (const std::exception& e) {
    text = e.what();
  }
  static_cast<void>(!::write(out, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF)));
  ::_exit(0);
}

/// What arrives until the other end is closed, or the time is up.
std::string receive(int from, Clock::time_point until, bool& late) {
  std::string text;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd wanted{.fd = from, .events = POLLIN, .revents = 0};
    const int ready = left > 0 ? ::poll(&wanted, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    late = ready == 0;
    char bytes[PIPE_BUF];
    const ssize_t count = ready > 0 ? ::read(from, bytes, sizeof bytes) : 0;
    if (count <= 0) return text;
    text.append(bytes, static_cast<std::size_t>(count));
  }
}

std::string cause(bool late, int status, const Limits& limits) {
  if (late) return "did not come to an end";
  if (!WIFSIGNALED(status)) return fmt::format("needed more than {} MiB of memory", limits.bytes / kMiB);
  const int signal = WTERMSIG(status);
  if (signal == SIGXCPU || signal == SIGKILL) return fmt::format("took more than {} s", limits.seconds);
  return fmt::format("crashed the library ({})", ::strsignal(signal));
}

}  // namespace

void try_in_child(const std::string& path, const std::function<void()>& read, int seconds) {
  int ends[2];
  check(::pipe2(ends, O_CLOEXEC) == 0, "read", "{}: cannot open a pipe: {}", path, std::strerror(errno));
  const Limits limits = limits_for(path, seconds);
  pid_t child = -1;
  {
    std::unique_lock library =
        lock_hdf5();  // no other thread is inside it, of which the child would have half
    child = ::fork();
    if (child == 0) {
      library.unlock();
      be_child(ends[1], limits, read);
    }
  }
  const int refused = errno;
  ::close(ends[1]);
  bool late = false;
  const std::string text = child > 0 ? receive(ends[0], Clock::now() + limits.wall, late) : "";
  ::close(ends[0]);
  check(child > 0, "read", "{}: cannot start the process that is to try it: {}", path,
        std::strerror(refused));
  if (late) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (text == kDone) return;
  if (!text.empty()) throw Error(text, std::source_location::current());
  fail("read",
       "{}: it is damaged, or not meant to be read so: reading it, which was tried in another process, {}",
       path, cause(late, status, limits));
}

}  // namespace ssn
