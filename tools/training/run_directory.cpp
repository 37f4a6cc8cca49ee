#include "tools/training/run_directory.h"

#include <ctime>
#include <filesystem>

#include "runtime/checkpoint.h"
#include "runtime/error.h"
#include "tools/training/task.h"

namespace ssn {
namespace {

namespace fs = std::filesystem;
constexpr const char* kFiles[] = {"config.toml", "plan.json", "metrics.jsonl", "checkpoint.h5", "best.h5"};

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

fs::path open(const RunDirectory::Request& request) {
  if (request.path.empty() && request.resume.empty()) return create_named(request.network);
  const fs::path path =
      request.path.empty() ? fs::absolute(request.resume).parent_path() : fs::path(request.path);
  if (!request.resume.empty()) return create(path), path;
  check_usage(request.overwrite || !holds_run(path), "run directory",
              "{} holds a run: go on with --resume {}/checkpoint.h5, replace it with --overwrite, or choose "
              "another --out",
              path.string(), path.string());
  create(path);
  for (const char* file : kFiles) {
    std::error_code error;
    fs::remove(path / file, error);
    check(!error, "run directory", "cannot remove {}: {}", (path / file).string(), error.message());
  }
  return path;
}

}  // namespace

RunDirectory::RunDirectory(Comm& comm, const Request& request) {
  on_root(comm, [&] { path_ = open(request).string(); });
  comm.broadcast(path_);
}

void RunDirectory::write(Comm& comm, std::string_view name, const std::string& text) const {
  on_root(comm, [&] { atomic_write_text(file(name), text); });
}

}  // namespace ssn
