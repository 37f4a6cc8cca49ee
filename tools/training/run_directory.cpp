#include "tools/training/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>

#include "runtime/checkpoint.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "tools/training/task.h"

namespace ssn {
namespace {

namespace fs = std::filesystem;
constexpr const char* kCheckpoint = "checkpoint.h5";
constexpr const char* kMapping = "mapping.json";
constexpr const char* kFiles[] = {"config.toml",   "plan.json", "vocab.txt",
                                  "metrics.jsonl", kCheckpoint, "best.h5"};
constexpr const char* kUnfinished = ".partial";  // replace_file()

/// Of kept_name().
std::optional<std::int64_t> step_of(std::string_view name) {
  constexpr std::string_view kBefore = "checkpoint-", kAfter = ".h5";
  if (!name.starts_with(kBefore) || !name.ends_with(kAfter)) return {};
  name.remove_prefix(kBefore.size());
  name.remove_suffix(kAfter.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.begin(), name.end(), step);
  return error == std::errc() && end == name.end() && step >= 0 ? std::optional(step) : std::nullopt;
}

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

/// What a run writes that is there.
std::vector<fs::path> files_of_run(const fs::path& path) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const char* file : kFiles)
    if (fs::exists(path / file, error)) files.push_back(path / file);
  for (const std::int64_t step : kept_steps(path.string())) files.push_back(path / kept_name(step));
  return files;
}

/// What a program that was killed had begun to write. Nobody else can be writing: the directory is locked.
void remove_unfinished(const fs::path& path) {
  std::error_code error;
  std::vector<fs::path> unfinished;
  for (const char* file : kFiles)  // a link is written where it leads
    unfinished.push_back(fs::weakly_canonical(path / file, error).concat(kUnfinished));
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error))
    if (entry.path().extension() == kUnfinished && step_of(entry.path().stem().string()))
      unfinished.push_back(entry.path());
  for (const fs::path& file : unfinished)
    if (fs::remove(file, error))
      info("removed {}, which a program that was killed had begun to write", file.string());
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
  const bool goes_on = fs::exists(path / kCheckpoint, error);
  const std::vector<fs::path> files = files_of_run(path);
  check_usage(overwrite || files.empty(), "run directory",
              "{} holds a run: {}replace it with --overwrite, or choose another --out", path.string(),
              goes_on ? fmt::format("go on with --resume {}/{}, ", path.string(), kCheckpoint) : "");
  const auto remove = [&](const fs::path& file) {
    fs::remove(file, error);
    check(!error, "run directory", "cannot remove {}: {}", file.string(), error.message());
  };
  for (const fs::path& file : files) remove(file);
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
    remove_unfinished(path);
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
    copy(checkpoint, kCheckpoint);
  });
}

void RunDirectory::write(Comm& comm, std::string_view name, const std::string& text) const {
  on_root(comm, [&] { atomic_write_text(file(name), text); });
}

std::string kept_name(std::int64_t step) {
  return fmt::format("checkpoint-{}.h5", step);
}

std::vector<std::int64_t> kept_steps(const std::string& directory) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error))
    if (const auto step = step_of(entry.path().filename().string())) steps.push_back(*step);
  std::ranges::sort(steps, std::greater());
  return steps;
}

std::string find_checkpoint(const std::string& resume) {
  std::error_code error;
  if (!fs::is_directory(resume, error)) return resume;
  const fs::path directory = resume, newest = directory / kCheckpoint;
  std::vector<std::string> others;
  for (const std::int64_t step : kept_steps(resume)) others.push_back(kept_name(step));
  if (fs::exists(directory / "best.h5", error)) others.emplace_back("best.h5");
  check_usage(fs::exists(newest, error), "train", "--resume: {} has no {}{}", resume, kCheckpoint,
              others.empty() ? ": there is no run to go on with"
                             : fmt::format(", but {}: give the path of one", fmt::join(others, ", ")));
  return newest.string();
}

}  // namespace ssn
