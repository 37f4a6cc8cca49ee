#include "runtime/error.h"

namespace ssn {

std::string error_text(Where where, std::string_view message) {
  return fmt::format("[{}] {}", where.op, message);
}

}  // namespace ssn
