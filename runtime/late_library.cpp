#include "runtime/late_library.h"

#include <dlfcn.h>
#include <glob.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "runtime/error.h"

namespace ssn {
namespace {

namespace fs = std::filesystem;
constexpr const char* kVariable = "SSN_CUDA_LIBRARIES";

/// The parts between colons of an environment variable, or all of it; those that are absolute paths.
std::vector<std::string> paths_in(const char* variable) {
  const char* value = std::getenv(variable);
  std::vector<std::string> paths;
  for (std::string_view rest = value ? value : ""; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(':'));
    if (part.starts_with('/')) paths.emplace_back(part);
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  }
  return paths;
}

/// Folders to look in, and what to call them.
struct Place {
  std::string name;
  std::vector<std::string> folders;

  /// Adds those that match a pattern, each once, whatever links lead to it.
  void add(const std::string& pattern) {
    glob_t found{};
    if (::glob(pattern.c_str(), GLOB_BRACE, nullptr, &found) == 0) {
      for (std::size_t i = 0; i < found.gl_pathc; ++i) {
        std::error_code error;
        const fs::path folder = fs::canonical(found.gl_pathv[i], error);
        if (!error && std::ranges::find(folders, folder.string()) == folders.end())
          folders.push_back(folder.string());
      }
    }
    ::globfree(&found);
  }
  std::string text() const {
    return fmt::format("{} ({})", name, folders.empty() ? "none" : fmt::to_string(fmt::join(folders, ", ")));
  }
};

/// Where the installers of CUDA, of Linux distributions and of conda put toolkits.
Place toolkits() {
  Place place{"CUDA toolkits", {}};
  std::vector<std::string> roots = {"/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda"};
  for (const char* variable : {"CONDA_PREFIX", "CUDA_PATH", "CUDA_HOME"})
    for (const std::string& root : paths_in(variable)) roots.insert(roots.begin(), root);
  for (const std::string& root : roots) place.add(root + "/{lib64,lib,targets/*-linux/lib}");
  return place;
}

/// Where pip puts NVIDIA's packages (nvidia/cudnn/lib and the like): of the environment that is active, of
/// every python in PATH, and the user's.
Place python_packages() {
  Place place{"Python packages", {}};
  for (const std::string& path : paths_in("PYTHONPATH")) place.add(path + "/nvidia/*/lib");
  std::vector<std::string> roots;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    for (const std::string& root : paths_in(variable)) roots.push_back(root);
  for (const std::string& path : paths_in("PATH")) roots.push_back(fs::path(path).parent_path().string());
  for (const std::string& home : paths_in("HOME")) roots.push_back(home + "/.local");
  for (const std::string& root : roots)
    place.add(root + "/{lib,lib64}/python3*/{site,dist}-packages/nvidia/*/lib");
  return place;
}

Place named_by_the_user() {
  return {kVariable, paths_in(kVariable)};
}

}  // namespace

LateLibrary::LateLibrary(std::string title, std::vector<std::string> files)
    : title_(std::move(title)), files_(std::move(files)) {}

void LateLibrary::open() {
  if (loaded_.load(std::memory_order_acquire)) [[likely]]
    return;
  if (const std::string missing = missing_libraries({this}); !missing.empty())
    fail_usage("load library", "this machine {}", missing);
}

/// Where nothing was found it is looked for again the next time.
bool LateLibrary::load() {
  const std::lock_guard lock(mutex_);
  if (loaded_) return true;
  refused_.clear();
  const auto try_folders = [&](const Place& place) {
    std::error_code closed;  // a folder that may not be entered has nothing
    for (const std::string& folder : place.folders)
      for (const std::string& file : files_)
        if (fs::exists(fs::path(folder) / file, closed) && try_file(folder + "/" + file)) return true;
    return false;
  };
  const bool found = try_folders(named_by_the_user()) ||
                     std::ranges::any_of(files_, [&](const std::string& f) { return try_file(f); }) ||
                     try_folders(toolkits()) || try_folders(python_packages());
  loaded_.store(found, std::memory_order_release);
  return found;
}

std::vector<std::string> LateLibrary::refused() {
  const std::lock_guard lock(mutex_);
  return refused_;
}

/// `file` is a path, or a name for the loader to look for.
bool LateLibrary::try_file(const std::string& file) {
  // Its symbols stay its own. A library that needs this one later is given it by its name.
  void* handle = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle) return take(handle, file);
  const char* reason = ::dlerror();
  const std::string text = reason ? reason : file + " cannot be loaded";
  // A name that the loader does not find is nothing to tell of; a library that this one needs is.
  if (!text.starts_with(file + ": cannot open shared object file: No such file")) refused_.push_back(text);
  return false;
}

bool LateLibrary::take(void* handle, const std::string& path) {
  for (const Function& function : functions_) {
    *function.address = ::dlsym(handle, function.name);
    if (*function.address) continue;
    refused_.push_back(fmt::format("{} has no {}", path, function.name));
    ::dlclose(handle);
    return false;
  }
  return true;
}

std::string missing_libraries(std::initializer_list<LateLibrary*> libraries) {
  std::vector<std::string> missing, refused;
  for (LateLibrary* library : libraries) {
    if (library->load()) continue;
    missing.push_back(fmt::format("{} ({})", library->title_, fmt::join(library->files_, " or ")));
    const std::vector<std::string> reasons = library->refused();
    refused.insert(refused.end(), reasons.begin(), reasons.end());
  }
  if (missing.empty()) return "";
  return fmt::format(
      "lacks {}, looked for in {}, where the loader looks (LD_LIBRARY_PATH, ldconfig -p), {} and {}{}{}: "
      "install {}, or name the folder{} in {}, with colons between them",
      fmt::join(missing, " and "), named_by_the_user().text(), toolkits().text(), python_packages().text(),
      refused.empty() ? "" : "; found, but not usable: ", fmt::join(refused, "; "),
      missing.size() == 1 ? "it" : "them", missing.size() == 1 ? "" : "s", kVariable);
}

}  // namespace ssn
