#include "tests/op_case.h"

namespace ssn::test {

std::vector<OpCase> math_cases() { return {}; }

}  // namespace ssn::test
