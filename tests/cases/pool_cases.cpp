#include "tests/op_case.h"

namespace ssn::test {

std::vector<OpCase> pool_cases() { return {}; }

}  // namespace ssn::test
