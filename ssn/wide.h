#pragma once

namespace ssn {

/// For products of two 64-bit numbers.
__extension__ typedef __int128 Wide;

}  // namespace ssn
