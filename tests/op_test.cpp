#include <numeric>
#include <optional>

#include "autograd/var.h"
#include "kernels/conv.h"
#include "runtime/dispatch.h"
#include "runtime/flavour.h"
#include "runtime/parallel.h"
#include "runtime/random.h"
#include "tests/bf16_cases.h"
#include "tests/cuda_on_host/schedules.h"
#include "tests/op_case.h"

namespace ssn::test {

Doubles draw(const Input& input, Domain domain, std::uint64_t index) {
  const Random random(7, index);
  Doubles values(static_cast<std::size_t>(input.shape.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double u = random.uniform(2 * i), sign = random.uniform(2 * i + 1) < 0.5 ? -1 : 1;
    switch (domain) {
      case Domain::normal: values[i] = random.normal(i); break;
      case Domain::positive: values[i] = 0.5 + u; break;
      case Domain::distinct:
        values[i] = (static_cast<double>(i) + 0.5 - static_cast<double>(values.size() / 2)) * 0.05;
        break;
      case Domain::all_negative: values[i] = -0.1 - 1.9 * u; break;
      case Domain::large: values[i] = sign * 1e4; break;
      case Domain::equal: values[i] = 0.5; break;
      case Domain::spread: values[i] = sign * std::pow(10.0, 8 * u - 4); break;
    }
    values[i] = static_cast<double>(static_cast<float>(values[i]));
  }
  if (domain == Domain::distinct)
    for (std::size_t i = values.size(); i > 1; --i)
      std::swap(values[i - 1],
                values[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i), i))]);
  return values;
}

namespace {

Tensor tensor_of(const Shape& shape, const Doubles& values, DType dtype, Device device) {
  return Tensor::of<double>(shape, values).to(dtype).to(device);
}

std::vector<Doubles> draw_all(const OpCase& c, std::optional<Domain> domain = {}) {
  std::vector<Doubles> values;
  for (std::size_t i = 0; i < c.inputs.size(); ++i)
    values.push_back(draw(c.inputs[i], domain && c.inputs[i].grad ? *domain : c.inputs[i].domain, i));
  return values;
}

/// The output and the gradients of the inputs that want one, for a random gradient of the output (a sum of
/// ones would hide permutations, and the whole gradient of a softmax).
struct Outcome {
  Tensor output;
  std::vector<Tensor> grads;
};

Outcome run_case(const OpCase& c, const std::vector<Doubles>& values, DType dtype, Device device) {
  std::vector<Var> inputs;
  for (std::size_t i = 0; i < values.size(); ++i) {
    Tensor t = tensor_of(c.inputs[i].shape, values[i], dtype, device);
    inputs.push_back(c.inputs[i].grad ? Var::leaf(std::move(t)) : Var::constant(std::move(t)));
  }
  const Var y = c.f(inputs);
  Outcome r{y.value(), {}};
  const Tensor gy = tensor_of(y.shape(), draw(Input{y.shape()}, Domain::normal, 1000), dtype, device);
  backward({&y, 1}, {&gy, 1});
  for (const Var& x : inputs)
    if (x.wants_grad()) r.grads.push_back(x.grad_buffer());
  return r;
}

void expect_close(const Outcome& got, const Outcome& want, double tolerance) {
  const auto compare = [&](const Tensor& a, const Tensor& b, const std::string& what) {
    ASSERT_EQ(a.shape(), b.shape()) << what;
    EXPECT_TRUE(close(values_of(a), values_of(b), tolerance, scale_of(values_of(b), 1e-6))) << what;
  };
  compare(got.output, want.output, "output");
  ASSERT_EQ(got.grads.size(), want.grads.size());
  for (std::size_t i = 0; i < want.grads.size(); ++i)
    compare(got.grads[i], want.grads[i], fmt::format("gradient {}", i));
}

void expect_same_bits(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_TRUE(same_bits(a.output, b.output)) << what << ": output";
  ASSERT_EQ(a.grads.size(), b.grads.size());
  for (std::size_t i = 0; i < a.grads.size(); ++i)
    EXPECT_TRUE(same_bits(a.grads[i], b.grads[i])) << what << ": gradient " << i;
}

template <class Case>
class Guarded : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { violations_ = guard_storages(); }
  void TearDown() override {
    EXPECT_EQ(guard_storages(), violations_) << "a storage was written past its end";
  }

 private:
  std::size_t violations_ = 0;
};

class Ops : public Guarded<OpCase> {};

TEST_P(Ops, reference) {
  const OpCase& c = GetParam();
  const auto values = draw_all(c);
  const Doubles want = c.reference(values);
  EXPECT_TRUE(close(values_of(run_case(c, values, DType::f64, Device::cpu).output), want, c.f64_tolerance,
                    scale_of(want, 1e-6)));
}

TEST_P(Ops, gradient) {
  const OpCase& c = GetParam();
  auto values = draw_all(c);
  const Outcome r = run_case(c, values, DType::f64, Device::cpu);
  const Doubles gy = draw(Input{r.output.shape()}, Domain::normal, 1000);
  const auto objective = [&] {
    const Doubles y = c.reference(values);
    return std::inner_product(y.begin(), y.end(), gy.begin(), 0.0);
  };
  std::size_t g = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!c.inputs[i].grad) continue;
    const Doubles analytic = values_of(r.grads[g++]);
    // Each asks the reference four times, which takes its time where there is much.
    const std::size_t n = values[i].size(), probes = n > 4000 ? 12 : std::min<std::size_t>(n, 40);
    const double scale = scale_of(analytic, 1e-3);
    for (std::size_t p = 0; p < probes; ++p) {
      const std::size_t e =
          n <= 40 ? p : static_cast<std::size_t>(Random(3, i).below(static_cast<std::int64_t>(n), p));
      const double x = values[i][e], h = c.step * std::max(1.0, std::abs(x));
      double at[4];
      for (int k = 0; k < 4; ++k) {
        values[i][e] = x + h * (k < 2 ? k - 2 : k - 1);
        at[k] = objective();
      }
      values[i][e] = x;
      const double numeric =
          (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h);  // four points: error of order h⁴
      if (!(std::abs(numeric - analytic[e]) <= 1e-6 * scale))
        FAIL() << fmt::format("input {}, element {}: gradient {:.12g}, central difference {:.12g}", i, e,
                              analytic[e], numeric);
    }
  }
}

TEST_P(Ops, precision) {
  const OpCase& c = GetParam();
  const auto values = draw_all(c);
  expect_close(run_case(c, values, DType::f32, Device::cpu), run_case(c, values, DType::f64, Device::cpu),
               c.f32_tolerance);
}

TEST_P(Ops, adversarial) {
  const OpCase& c = GetParam();
  for (Domain d : c.adversarial) {
    const auto values = draw_all(c, d);
    const Doubles want = c.reference(values);
    EXPECT_TRUE(close(values_of(run_case(c, values, DType::f32, Device::cpu).output), want, c.f32_tolerance,
                      scale_of(want, 1e-6)))
        << "domain " << static_cast<int>(d);
  }
}

TEST_P(Ops, repeat) {
  const OpCase& c = GetParam();
  const auto values = draw_all(c);
  const int threads = num_threads();
  for (DType dtype : {DType::f32, DType::f64}) {
    const Outcome first = run_case(c, values, dtype, Device::cpu);
    expect_same_bits(run_case(c, values, dtype, Device::cpu), first, "a second time");
    for (int t = 1; t <= 3 && c.thread_invariant; ++t) {
      set_num_threads(t);
      expect_same_bits(run_case(c, values, dtype, Device::cpu), first, fmt::format("on {} threads", t));
    }
    set_num_threads(threads);
  }
}

TEST_P(Ops, cuda) {
  const OpCase& c = GetParam();
  if (build::cuda_on_host && !c.cuda_on_host) GTEST_SKIP() << "takes long on the host";
  if (!available(Device::cuda))
    GTEST_SKIP() << "no CUDA device, and the kernels do not run on the host in this build";
  const auto values = draw_all(c);
  for (DType dtype : {DType::f32, DType::f64}) {
    if (dtype == DType::f64 && !c.cuda_f64) continue;
    const Outcome first = run_case(c, values, dtype, Device::cuda);
    expect_close(first, run_case(c, values, dtype, Device::cpu),
                 dtype == DType::f32 ? c.f32_tolerance : c.f64_tolerance);
    // What sanitizers find hardly depends on the order, and they take their time.
    const int randoms = build::exact_allocation ? 0 : 4;
    const auto again = [&] {
      expect_same_bits(run_case(c, values, dtype, Device::cuda), first, "again, or under another schedule");
    };
    cuda_on_host::every_schedule(again, randoms);
  }
}

class HalfOps : public Guarded<HalfCase> {};

TEST_P(HalfOps, cuda) {
  const HalfCase& c = GetParam();
  if (!available(Device::cuda))
    GTEST_SKIP() << "no CUDA device, and the kernels do not run on the host in this build";
  if (c.library && !takes_bf16(Device::cuda)) GTEST_SKIP() << "this GPU has no bf16";
  const auto first = run_half(c, DType::bf16, Device::cuda);
  if (!c.library || takes_bf16(Device::cpu))
    expect_close_as_bf16(c, first, run_half(c, DType::bf16, Device::cpu));
  const auto again = [&] {
    const auto second = run_half(c, DType::bf16, Device::cuda);
    for (std::size_t i = 0; i < first.size(); ++i)
      EXPECT_TRUE(same_bits(first[i], second[i])) << "again, or under another schedule: " << i;
  };
  cuda_on_host::every_schedule(again, build::exact_allocation ? 0 : 1);
}

std::vector<OpCase> all_cases() {
  std::vector<OpCase> all;
  for (const auto& cases :
       {math_cases(), shape_cases(), norm_cases(), pool_cases(), loss_cases(), conv_cases(), matmul_cases(),
        generate_cases(), generated_linear_cases(), resize_cases(), scale_cases(), dropout_cases(),
        optimizer_cases(), layer_norm_cases(), embedding_cases(), attention_cases(), augment_cases()})
    all.insert(all.end(), cases.begin(), cases.end());
  return all;
}

const auto name_of_case = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Case, Ops, testing::ValuesIn(all_cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(Case, HalfOps, testing::ValuesIn(half_cases()), name_of_case);

}  // namespace

void PrintTo(const OpCase& c, std::ostream* out) {
  *out << c.name << "; rerun: op_test --gtest_filter='*/" << c.name << "'";
}

}  // namespace ssn::test
