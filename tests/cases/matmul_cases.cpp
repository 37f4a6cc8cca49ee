#include "tests/op_case.h"

namespace ssn::test {

std::vector<OpCase> matmul_cases() { return {}; }

}  // namespace ssn::test
