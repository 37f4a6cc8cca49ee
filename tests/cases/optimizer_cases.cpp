#include "tests/op_case.h"

namespace ssn::test {

std::vector<OpCase> optimizer_cases() { return {}; }

}  // namespace ssn::test
