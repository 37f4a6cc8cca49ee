#include "tools/training/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>

#include "runtime/checkpoint.h"
#include "runtime/error.h"
#include "tools/training/task.h"

namespace ssn {
namespace {

namespace fs = std::filesystem;
constexpr const char* kMapping = "mapping.json";
constexpr const char* kFiles[] = {"config.toml",   "plan.json",     "vocab.txt",
                                  "metrics.jsonl", "checkpoint.h5", "best.h5"};

void create(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  check(!error && fs::is_directory(path), "run directory", "cannot create {}: {}", path.string(),
        error ? error.message() : "there is a file of this name");
}

/// runs/<date>-<network>-<n> with the first free n: creating a directory tells whether it was there.
fs::path create_named(const std::string& network) {
  const std::time_t now = std::time(nullptr);
  char date[16] = "";
  std::strftime(date, sizeof date, "%Y-%m-%d", std::localtime(&now));
  create("runs");
  for (int n = 1;; ++n) {
    fs::path path = fmt::format("runs/{}-{}-{}", date, network, n);
    std::error_code error;
    const bool created = fs::create_directory(path, error);
    check(!error, "run directory", "cannot create {}: {}", path.string(), error.message());
    if (created) return path;
  }
}

bool holds_run(const fs::path& path) {
  std::error_code error;
  for (const char* file : kFiles) {
    if (fs::exists(path / file, error)) return true;
  }
  return false;
}

/// Held by the result. Two programs would each replace the files of the other.
std::shared_ptr<void> lock(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool taken = ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  std::shared_ptr<void> held(nullptr, [fd](void*) { ::close(fd); });
  check_usage(!taken, "run directory",
              "another program is writing its run into {}: wait for its end, or choose another --out",
              path.string());
  return held;
}

void make_room(const fs::path& path, const fs::path& mapping, bool overwrite) {
  std::error_code error;
  const bool goes_on = fs::exists(path / "checkpoint.h5", error);
  check_usage(overwrite || !holds_run(path), "run directory",
              "{} holds a run: {}replace it with --overwrite, or choose another --out", path.string(),
              goes_on ? fmt::format("go on with --resume {}/checkpoint.h5, ", path.string()) : "");
  const auto remove = [&](const fs::path& file) {
    fs::remove(file, error);
    check(!error, "run directory", "cannot remove {}: {}", file.string(), error.message());
  };
  for (const char* file : kFiles) remove(path / file);
  if (!fs::equivalent(path / kMapping, mapping, error)) remove(path / kMapping);
}

}  // namespace

RunDirectory::RunDirectory(Comm& comm, const Request& request) {
  on_root(comm, [&] {
    const fs::path resumed = request.resume.empty() ? "" : fs::absolute(request.resume).parent_path();
    fs::path path = request.path.empty() ? resumed : fs::path(request.path);
    if (path.empty()) path = create_named(request.network);
    create(path);
    lock_ = lock(path);
    std::error_code error;
    if (!fs::equivalent(path, resumed, error)) make_room(path, request.mapping, request.overwrite);
    path_ = path.string();
  });
  comm.broadcast(path_);
}

void RunDirectory::take_over(Comm& comm, const std::string& checkpoint) const {
  on_root(comm, [&] {
    const fs::path before = fs::absolute(checkpoint).parent_path();
    std::error_code error;
    if (fs::equivalent(before, path_, error)) return;
    const auto copy = [&](const fs::path& from, const char* name) {
      if (!fs::exists(from, error)) return;
      fs::copy_file(from, file(name), fs::copy_options::overwrite_existing, error);
      check(!error, "run directory", "cannot write {}: {}", file(name), error.message());
    };
    for (const char* name : {kMapping, "best.h5"}) copy(before / name, name);
    copy(checkpoint, "checkpoint.h5");
  });
}

void RunDirectory::write(Comm& comm, std::string_view name, const std::string& text) const {
  on_root(comm, [&] { atomic_write_text(file(name), text); });
}

}  // namespace ssn
