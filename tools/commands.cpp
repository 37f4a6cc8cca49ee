#include "tools/commands.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "runtime/config.h"
#include "runtime/error.h"
#include "runtime/text.h"
#include "tools/training/task.h"

namespace ssn {

namespace fs = std::filesystem;

void print_result(const Comm& comm, const std::string& text) {
  if (comm.rank() != 0) return;
  fmt::print("{}\n", text);
  check(std::fflush(stdout) == 0, "output", "cannot write to stdout: is the disk full, or the reader gone?");
}

void check_output(Comm& comm, const std::string& path, bool overwrite) {
  on_root(comm, [&] {
    std::error_code error;
    const fs::path file = path, folder = file.has_parent_path() ? file.parent_path() : ".";
    check_usage(!path.empty(), "output", "the file to write has an empty name");
    check_usage(!fs::is_directory(file, error), "output", "{} is a directory: give the name of a file", path);
    check_usage(overwrite || !fs::exists(file, error), "output",
                "{} is there already: replace it with --overwrite, or choose another name", path);
    check_usage(fs::is_directory(folder, error), "output", "{}: there is no directory {}", path,
                folder.string());
    check(access(folder.c_str(), W_OK) == 0, "output", "cannot write into {}: {}", folder.string(),
          std::strerror(errno));
  });
}

namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(Comm&, const Arguments&);
};
constexpr Command kCommands[] = {
    {"train", "train a network inside a parameter budget; without flags, the sample task", train},
    {"plan", "show which parameters would make which weights, and what it costs; needs no data", plan},
    {"map", "learn which layers should share parameters, and write that as a mapping file", map},
    {"eval", "measure a checkpoint on a test set", eval},
    {"inspect", "show what a checkpoint holds", inspect},
    {"export", "write a checkpoint's weights as its layers use them, for other programs", export_weights},
    {"import", "make a checkpoint of weights from elsewhere, shared ones by fitting", import_weights},
    {"profile", "time training steps under several budgets, phase by phase", profile},
    {"simulate", "predict such steps on more ranks and other networks", simulate},
    {"pack", "put the files of a folder of images together into a few large ones", pack},
};

std::string help() {
  std::string out =
      "Trains networks of any architecture inside any parameter budget.\n\nusage: ssn COMMAND [options]\n\n";
  for (const Command& command : kCommands) out += fmt::format("  {:<9} {}\n", command.name, command.summary);
  return out +
         "\nssn COMMAND --help shows the options of a command. On several ranks: mpirun -n N --bind-to none "
         "ssn ...\n"
         "Exit codes: 0 done, 1 failed, 2 wrong usage, 75 stopped by a signal with a checkpoint.";
}

}  // namespace

int run_command(Comm& comm, const Arguments& arguments) {
  check_usage(!arguments.empty(), "ssn", "which command? For example: ssn train (see ssn --help)");
  const std::string& name = arguments[0];
  if (name == "--help" || name == "-h" || name == "help") return print_result(comm, help()), 0;
  if (name == "--version") return print_result(comm, fmt::format("ssn {}", build::version)), 0;
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    names.emplace_back(command.name);
    if (name == command.name) return command.run(comm, {arguments.begin() + 1, arguments.end()});
  }
  fail_usage("ssn", "there is no command '{}'; {} (see ssn --help)", name, suggestion(name, names));
}

}  // namespace ssn
