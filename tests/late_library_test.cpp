#include "runtime/late_library.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/error.h"

namespace ssn {
namespace {

namespace fs = std::filesystem;

/// SSN_CUDA_LIBRARIES names a folder of the test's own.
class LateLibraryTest : public testing::Test {
 protected:
  LateLibraryTest() {
    fs::create_directories(folder_);
    setenv("SSN_CUDA_LIBRARIES", ("/nowhere:" + folder_.string()).c_str(), 1);
  }
  ~LateLibraryTest() override {
    unsetenv("SSN_CUDA_LIBRARIES");
    fs::remove_all(folder_);
  }
  /// A file that is no library.
  void write(const std::string& name) const { std::ofstream(folder_ / name) << "no library"; }

  const fs::path folder_ = fs::temp_directory_path() / ("late_library_" + std::to_string(::getpid()));
};

std::string error_of(LateLibrary& library) {
  try {
    library.open();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST_F(LateLibraryTest, CallsWhatItFinds) {
  LateLibrary library("the mathematical library", {"libnone.so.1", "libm.so.6"});
  const LateFunction<double(double)> cosine(library, "cos");
  EXPECT_EQ(cosine(1.0), std::cos(1.0));
  EXPECT_EQ(missing_libraries({&library}), "");
}

TEST_F(LateLibraryTest, SaysWhatIsMissingAndWhereItLooked) {
  LateLibrary one("cuOne", {"libssn_one.so.2", "libssn_one.so.1"}), two("cuTwo", {"libssn_two.so"});
  const std::string message = error_of(one);
  EXPECT_EQ(
      message.find("[load library] this machine lacks cuOne (libssn_one.so.2 or libssn_one.so.1), looked "
                   "for in SSN_CUDA_LIBRARIES (/nowhere, " +
                   folder_.string() + "), where the loader looks"),
      0u)
      << message;
  EXPECT_NE(message.find("install it, or name the folder in SSN_CUDA_LIBRARIES"), std::string::npos)
      << message;
  EXPECT_EQ(
      missing_libraries({&one, &two})
          .find("lacks cuOne (libssn_one.so.2 or libssn_one.so.1) and cuTwo (libssn_two.so), looked for"),
      0u);
  const LateFunction<int()> function(one, "function");
  EXPECT_THROW(function(), UsageError);
}

TEST_F(LateLibraryTest, SaysWhyItCannotUseWhatItFinds) {
  write("libssn_broken.so");
  LateLibrary broken("cuBroken", {"libssn_broken.so"});
  const std::string message = error_of(broken);
  EXPECT_NE(message.find("found, but not usable: " + (folder_ / "libssn_broken.so").string() + ": "),
            std::string::npos)
      << message;

  LateLibrary old("cuOld", {"libm.so.6"});
  const LateFunction<double(double)> cosine(old, "cos");
  const LateFunction<double(double)> missing(old, "ssn_no_such_function");
  EXPECT_NE(error_of(old).find("found, but not usable: libm.so.6 has no ssn_no_such_function: install it"),
            std::string::npos)
      << error_of(old);
  EXPECT_THROW(cosine(1.0), UsageError);
}

TEST_F(LateLibraryTest, GoesOnBehindWhatItCannotUse) {
  write("libm.so.6");
  LateLibrary library("the mathematical library", {"libm.so.6"});
  const LateFunction<double(double)> cosine(library, "cos");
  EXPECT_EQ(cosine(0.0), 1.0);
}

TEST_F(LateLibraryTest, LooksInPythonPackages) {
  const fs::path lib = folder_ / "nvidia/some/lib";
  fs::create_directories(lib);
  const char* before = std::getenv("PYTHONPATH");
  const std::string kept = before ? before : "";
  setenv("PYTHONPATH", folder_.c_str(), 1);
  LateLibrary library("cuSome", {"libssn_some.so"});
  EXPECT_NE(error_of(library).find("Python packages (" + fs::canonical(lib).string()), std::string::npos)
      << error_of(library);
  before ? setenv("PYTHONPATH", kept.c_str(), 1) : unsetenv("PYTHONPATH");
}

}  // namespace
}  // namespace ssn
