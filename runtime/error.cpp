#include "runtime/error.h"

namespace ssn {
namespace {
int g_rank = -1;
}
void set_error_rank(int rank) {
  g_rank = rank;
}
std::string error_text(Where where, std::string_view message) {
  const std::string rank = g_rank < 0 ? "" : fmt::format("rank {}: ", g_rank);
  return fmt::format("{}[{}] {}", rank, where.op, message);
}
}  // namespace ssn
