# Language, warnings, CUDA and sanitizers.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)  # libraries may be where the loader does not look
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug, RelWithDebInfo" FORCE)
endif()

# Binaries move between hosts: a common baseline, not the machine that builds.
set(SSN_CXX_FLAGS -Wall -Wextra -Wpedantic -Werror -Wno-missing-field-initializers)  # the last: options are designated initialisers
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND SSN_CXX_FLAGS -march=x86-64-v3)
endif()

# CUDA: found automatically, never required.
set(SSN_HAS_CUDA false)
set(SSN_CUDA_ON_HOST false)
if(SSN_CUDA STREQUAL "host")
  set(SSN_HAS_CUDA true)
  set(SSN_CUDA_ON_HOST true)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    message(FATAL_ERROR "SSN_CUDA=host needs g++ (its noinit attribute marks shared memory), found ${CMAKE_CXX_COMPILER_ID}: set CMAKE_CXX_COMPILER=g++")
  endif()
elseif(NOT SSN_CUDA STREQUAL "off")
  include(CheckLanguage)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)  # before enable_language, whose default is older
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin)
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.25.2 does not know that nvcc has it
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    find_package(CUDAToolkit REQUIRED)
    set(SSN_HAS_CUDA true)
    # fmt turns its constexpr off under nvcc, and then its format strings cannot be checked.
    set(SSN_CUDA_FLAGS -Xcompiler=-Wall,-Wextra --expt-relaxed-constexpr -DFMT_USE_CONSTEXPR=1)
    if(CMAKE_CUDA_ARCHITECTURES STREQUAL "90")  # what the kernels are tuned for: spills are errors
      list(APPEND SSN_CUDA_FLAGS -Xptxas=-warn-spills,-Werror)
    endif()
  elseif(SSN_CUDA STREQUAL "on")
    message(FATAL_ERROR "SSN_CUDA=on, but no nvcc was found: set CMAKE_CUDA_COMPILER, or SSN_CUDA=auto or off")
  endif()
endif()
message(STATUS "CUDA: ${SSN_HAS_CUDA} (on the host: ${SSN_CUDA_ON_HOST})")

# The oldest GPU: "80-real;90" is for 8.0 and newer. Names such as "native" say nothing; the kernels need 7.5.
set(SSN_LEAST_CAPABILITY 75)
if(SSN_HAS_CUDA AND NOT SSN_CUDA_ON_HOST)
  set(numbers ${CMAKE_CUDA_ARCHITECTURES})
  list(TRANSFORM numbers REPLACE "[^0-9].*" "")
  list(SORT numbers COMPARE NATURAL)
  if(numbers)
    list(GET numbers 0 least)
    if(least GREATER SSN_LEAST_CAPABILITY)
      set(SSN_LEAST_CAPABILITY ${least})
    endif()
  endif()
endif()

set(SSN_EXACT_ALLOCATION false)
if(SSN_SANITIZE STREQUAL "address")
  set(SSN_EXACT_ALLOCATION true)
  # Left out are the checks of every reference and every object's type (null, vptr), a fourth of the time to compile: what
  # follows from such a mistake is noticed when memory is reached.
  # g++ 12 takes what the sanitizers insert for uses of values without a value: no such warnings here.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-O1;-g1;-fsanitize=address,undefined;-fno-sanitize=null,vptr;-fno-sanitize-recover=all;-fno-omit-frame-pointer;-Wno-maybe-uninitialized>")
  add_link_options(-fsanitize=address,undefined)
elseif(SSN_SANITIZE STREQUAL "fuzzer")
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "SSN_SANITIZE=fuzzer needs clang 16 or newer (libFuzzer is its own), found ${CMAKE_CXX_COMPILER_ID}: set CMAKE_C_COMPILER and CMAKE_CXX_COMPILER")
  endif()
  # Loops that clang does not vectorise do no harm here, nor does what only CUDA builds call.
  list(APPEND SSN_CXX_FLAGS -Wno-pass-failed -Wno-unneeded-internal-declaration -Wno-unused-function)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-O1;-g1;-fsanitize=fuzzer-no-link,address,undefined;-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
  add_link_options(-fsanitize=address,undefined)
elseif(SSN_SANITIZE STREQUAL "race")
  set(SSN_EXACT_ALLOCATION true)
endif()
include(GNUInstallDirs)  # config.h names the place of installed data
