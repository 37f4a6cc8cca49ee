#include "ssn/kmeans.h"
#include "tests/golden_case.h"

// Adapters for k-means, which computes in double precision whatever the case's.
namespace ssn::test {
namespace {

std::vector<double> values(const GoldenCase& c, const std::string& name) {
  const auto v = c.inputs.at(name).span<double>();
  return {v.begin(), v.end()};
}

Tensor integers(const std::vector<int>& v) {
  return Tensor::of<std::int64_t>({std::ssize(v)}, std::vector<std::int64_t>(v.begin(), v.end()));
}

GoldenResult run_lloyd(const GoldenCase& c, const Cotangents&, DType, Device) {
  const std::vector<double> x = values(c, "x");
  const Clusters found = lloyd({x, c.inputs.at("x").shape()[1]}, values(c, "c0"));
  return {{{"labels", integers(found.labels)},
           {"centers", Tensor::of<double>(c.inputs.at("c0").shape(), found.centers)},
           {"inertia", Tensor::of<double>({1}, std::vector{found.inertia})}},
          {}};
}

GoldenResult run_partition(const GoldenCase& c, const Cotangents&, DType, Device) {
  const std::vector<double> x = values(c, "x");
  const Clusters found =
      kmeans({x, c.inputs.at("x").shape()[1]}, static_cast<int>(c.integer("P")), /*seed=*/0);
  return {{{"labels", integers(found.labels)}}, {}};
}

}  // namespace

std::map<std::string, Adapter> golden_kmeans_adapters() {
  return {{"kmeans_lloyd", run_lloyd}, {"kmeans_partition", run_partition}};
}

}  // namespace ssn::test
