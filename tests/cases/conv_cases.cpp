#include "tests/op_case.h"

namespace ssn::test {

std::vector<OpCase> conv_cases() { return {}; }

}  // namespace ssn::test
