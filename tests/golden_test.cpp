#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "autograd/var.h"
#include "runtime/config.h"
#include "runtime/dispatch.h"
#include "tests/close.h"
#include "tests/golden_case.h"

// Every case of every file in SSN_GOLDEN_DIR (default: tests/golden), in f32 and f64, on the CPU and where
// there is one on a CUDA device. A case of an operation or rule that the project does not have is reported as
// skipped, by name.
namespace ssn::test {

double GoldenCase::number(const std::string& name) const {
  const Attribute& a = attributes.at(name);
  return std::holds_alternative<double>(a) ? std::get<double>(a)
                                           : static_cast<double>(std::get<std::int64_t>(a));
}

std::vector<std::int64_t> GoldenCase::integers(const std::string& name) const {
  const Attribute& a = attributes.at(name);
  if (std::holds_alternative<std::int64_t>(a)) return {std::get<std::int64_t>(a)};
  return std::get<std::vector<std::int64_t>>(a);
}

Var leaf(const GoldenCase& c, const std::string& name, DType dtype, Device device) {
  return Var::leaf(c.inputs.at(name).to(dtype).to(device));
}

GoldenResult finish(const std::map<std::string, Var>& outputs, const std::map<std::string, Var>& leaves,
                    const Cotangents& gout) {
  GoldenResult result;
  std::vector<Var> ys;
  std::vector<Tensor> gs;
  for (const auto& [name, y] : outputs) {
    result.outputs[name] = y.value();
    if (!gout.contains(name)) continue;
    ys.push_back(y);
    gs.push_back(gout.at(name).to(y.dtype()).view(y.shape()).to(y.device()));
  }
  backward(ys, gs);
  for (const auto& [name, x] : leaves) result.grads[name] = x.grad_buffer();
  return result;
}

namespace {

Tensor permuted(const Tensor& t, bool to_last) {
  const Shape& s = t.shape();
  const std::int64_t n = s[0], c = to_last ? s[1] : s[3], h = to_last ? s[2] : s[1],
                     w = to_last ? s[3] : s[2];
  Tensor out = Tensor::empty(to_last ? Shape{n, h, w, c} : Shape{n, c, h, w}, DType::f64);
  const Tensor in = t.to(Device::cpu).to(DType::f64);
  const auto from = in.span<double>();
  const auto to = out.span<double>();
  std::size_t first = 0;  // over (n, c, h, w)
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < c; ++j)
      for (std::int64_t y = 0; y < h; ++y)
        for (std::int64_t x = 0; x < w; ++x, ++first) {
          const auto last = static_cast<std::size_t>(((i * h + y) * w + x) * c + j);
          (to_last ? to[last] : to[first]) = to_last ? from[first] : from[last];
        }
  return out;
}

struct Expected {
  std::map<std::string, Tensor> outputs, grads;
  Cotangents gout;
  double f32_out_error = 0, f32_grad_error = 0;
};

std::pair<GoldenCase, Expected> read(const std::string& path, const std::string& name) {
  const Hdf5File file = Hdf5File::open(path);
  GoldenCase c{
      .op = file.attribute<std::string>(name, "op"), .attributes = file.attributes(name), .inputs = {}};
  Expected e;
  for (const std::string& dataset : file.children(name)) {
    const auto take = [&](std::string_view prefix, std::map<std::string, Tensor>& to) {
      if (dataset.starts_with(prefix)) to[dataset.substr(prefix.size())] = file.read(name + "/" + dataset);
    };
    take("in.", c.inputs);
    take("meta.", c.inputs);
    take("out.", e.outputs);
    take("gout.", e.gout);
    take("gin.", e.grads);
  }
  if (c.attributes.contains("f32_out_err")) e.f32_out_error = c.number("f32_out_err");
  if (c.attributes.contains("f32_gin_err")) e.f32_grad_error = c.number("f32_gin_err");
  return {std::move(c), std::move(e)};
}

double tolerance(const GoldenCase& c, DType dtype, double f32_error) {
  if (dtype == DType::f64) return 1e-10;
  if (c.op == "ssn_e2e") return 1e-4;
  return c.op.starts_with("ssn_") ? 1e-5 : std::max(1e-5, 20 * f32_error);
}

/// Each array of `want` by element, against the largest value of the array but at least 1% of the largest of
/// all of them.
void compare(const std::map<std::string, Tensor>& got, const std::map<std::string, Tensor>& want,
             double tolerance, const std::string& what) {
  double largest = 0;
  for (const auto& [name, t] : want) largest = std::max(largest, scale_of(values_of(t)));
  for (const auto& [name, t] : want) {
    ASSERT_TRUE(got.contains(name)) << what << " " << name << " is not given";
    const std::vector<double> w = values_of(t);
    EXPECT_TRUE(close(values_of(got.at(name)), w, tolerance, scale_of(w, 0.01 * largest)))
        << what << " " << name;
  }
}

class Golden : public testing::Test {
 public:
  Golden(std::string path, std::string name, DType dtype, Device device)
      : path_(std::move(path)), name_(std::move(name)), dtype_(dtype), device_(device) {}
  void TestBody() override {
    const auto [c, want] = read(path_, name_);
    std::map<std::string, Adapter> adapters = golden_op_adapters();
    adapters.merge(golden_ssn_adapters());
    adapters.merge(golden_kmeans_adapters());
    const auto adapter = adapters.find(c.op);
    if (adapter == adapters.end()) GTEST_SKIP() << c.op << ": no such operation yet";
    try {
      const GoldenResult got = adapter->second(c, want.gout, dtype_, device_);
      std::map<std::string, Tensor> outputs = want.outputs;
      for (const std::string& name : got.left_out) outputs.erase(name);
      compare(got.outputs, outputs, tolerance(c, dtype_, want.f32_out_error), "output");
      compare(got.grads, want.grads, tolerance(c, dtype_, want.f32_grad_error), "gradient of");
    } catch (const Skip& skip) {
      GTEST_SKIP() << c.op << ": " << skip.why;
    }
  }

 private:
  std::string path_, name_;
  DType dtype_;
  Device device_;
};

void register_cases(const std::string& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (entry.path().extension() == ".h5") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  check(!files.empty(), "golden", "no .h5 file in {}: set SSN_GOLDEN_DIR", directory);
  for (const auto& path : files)
    for (const std::string& name : Hdf5File::open(path).children(""))
      for (Device device : {Device::cpu, Device::cuda})
        for (DType dtype : {DType::f64, DType::f32}) {
          if (!available(device)) continue;
          const std::string test = fmt::format("{}_{}_{}", name, name_of(dtype), name_of(device));
          testing::RegisterTest(path.stem().c_str(), test.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                                [=]() -> Golden* { return new Golden(path, name, dtype, device); });
        }
}

}  // namespace

Tensor channels_last(const Tensor& t) {
  return permuted(t, true);
}
Tensor channels_first(const Tensor& t) {
  return permuted(t, false);
}

}  // namespace ssn::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const char* directory = std::getenv("SSN_GOLDEN_DIR");
  try {
    ssn::test::register_cases(directory ? directory
                                        : std::string(ssn::build::source_data_dir) + "/../tests/golden");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return RUN_ALL_TESTS();
}
