#include <fcntl.h>
#include <unistd.h>

#include <optional>
#include <string_view>

#include "runtime/log.h"
#include "tools/commands.h"
#include "tools/training/stop_signals.h"

namespace {

/// Files must not get the numbers of closed standard streams, or messages would end up in them. Writing to a
/// closed stdout goes on to fail.
void hold_standard_streams() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDONLY);
  if (fd >= 0) ::close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  hold_standard_streams();
  // From the beginning to the end: a signal while the data is read, or behind the last step, is one to stop.
  std::optional<ssn::StopSignals> signals;
  if (argc > 1 && std::string_view(argv[1]) == "train") signals.emplace();
  return ssn::run_ranks([&](ssn::Comm& comm) {
    ssn::set_log({.rank = comm.rank()});
    return ssn::run_command(comm, ssn::Arguments(argv + 1, argv + argc));
  });
}
