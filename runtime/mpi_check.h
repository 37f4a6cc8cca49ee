#pragma once
#include <mpi.h>

#include "runtime/error.h"

namespace ssn {

/// Every MPI call goes through here; communicators and windows return their errors.
inline void check_mpi(int code, Where where) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(where, "MPI failed: {}", std::string_view(text, static_cast<std::size_t>(length)));
}

}  // namespace ssn
