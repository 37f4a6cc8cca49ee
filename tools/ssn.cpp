#include "runtime/log.h"
#include "tools/commands.h"

int main(int argc, char** argv) {
  return ssn::run_ranks([&](ssn::Comm& comm) {
    ssn::set_log({.rank = comm.rank()});
    return ssn::run_command(comm, ssn::Arguments(argv + 1, argv + argc));
  });
}
