#pragma once
#include "layers/models/outline.h"

// A small network of each family of networks for images.
namespace ssn::test {

struct Family {
  const char* name;
  NetworkTask task;
  NetworkSize size;
};
inline constexpr Family kFamilies[] = {
    {"wrn-10-1", {2, 7, 6, 3}, {0.2, 0}},          {"resnet-20", {2, 7, 6, 3}, {0.2, 2}},
    {"resnet-10", {2, 7, 6, 3}, {0.05, 0}},        {"resnet-50", {2, 7, 6, 3}, {0.04, 9}},
    {"wrn-50-2", {2, 18, 17, 3}, {0.04, 9}},       {"densenet-22-4", {2, 8, 7, 3}, {0.8, 1}},
    {"efficientnet-b0", {2, 15, 14, 3}, {0.1, 1}},
};

}  // namespace ssn::test
