#pragma once
#include <cstdint>
#include <string_view>

namespace ssn {
enum class Device : std::uint8_t { cpu, cuda };
constexpr std::string_view name_of(Device d) {
  return d == Device::cpu ? "cpu" : "cuda";
}
}  // namespace ssn
