#pragma once
#include <atomic>
#include <initializer_list>
#include <mutex>
#include <string>
#include <vector>

namespace ssn {

/// One of CUDA's libraries, loaded when it is first needed: a program starts, and works on the CPU, where
/// there is none. It is looked for in the folders of SSN_CUDA_LIBRARIES (with colons between them), then
/// where the loader looks, in CUDA toolkits and in Python's packages; the first that can be loaded and has
/// every LateFunction is taken, and kept to the program's end. Thread-safe.
class LateLibrary {
 public:
  /// `title` is what people call it, `files` are what its versions are called, the best first.
  LateLibrary(std::string title, std::vector<std::string> files);
  LateLibrary(const LateLibrary&) = delete;
  LateLibrary& operator=(const LateLibrary&) = delete;

  /// Loads it, unless that is done. Throws UsageError where it cannot be: missing_libraries.
  void open();

 private:
  friend std::string missing_libraries(std::initializer_list<LateLibrary*> libraries);
  template <class F>
  friend class LateFunction;

  struct Function {
    const char* name;
    void** address;
  };
  bool load();
  std::vector<std::string> refused();
  bool try_file(const std::string& file);
  bool take(void* handle, const std::string& path);

  std::string title_;
  std::vector<std::string> files_;
  std::vector<Function> functions_;
  std::vector<std::string> refused_;  // what was found and could not be used, with the reason
  std::mutex mutex_;
  std::atomic<bool> loaded_ = false;
};

/// Loads these libraries. Empty if that went well, else what this machine lacks of them and where it was
/// looked for, as "lacks cuDNN (libcudnn.so.9), looked for in ...".
std::string missing_libraries(std::initializer_list<LateLibrary*> libraries);

/// A function of such a library, made before that is loaded and as long-lived.
template <class F>
class LateFunction;
template <class R, class... A>
class LateFunction<R(A...)> {
 public:
  /// `name` is a literal.
  LateFunction(LateLibrary& library, const char* name) : library_(library) {
    library.functions_.push_back({name, &address_});
  }
  LateFunction(const LateFunction&) = delete;
  LateFunction& operator=(const LateFunction&) = delete;

  R operator()(A... arguments) const {
    library_.open();
    return reinterpret_cast<R (*)(A...)>(address_)(arguments...);
  }

 private:
  LateLibrary& library_;
  void* address_ = nullptr;
};

}  // namespace ssn
