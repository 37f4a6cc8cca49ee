#include "kernels/matmul.h"
#include "runtime/dispatch.h"
#include "tests/op_case.h"

namespace ssn::test {
namespace {

/// op(a) op(b) from its definition; op(a) is (m, k), op(b) is (k, n).
Doubles product(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k, const Doubles& a,
                const Doubles& b) {
  Doubles c;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l)
        sum += a.at(static_cast<std::size_t>(ta ? l * m + i : i * k + l)) *
               b.at(static_cast<std::size_t>(tb ? j * k + l : l * n + j));
      c.push_back(sum);
    }
  return c;
}

const std::vector<Domain> kDomains = {Domain::all_negative, Domain::large, Domain::equal, Domain::spread};

OpCase linear_case(std::int64_t rows, std::int64_t in, std::int64_t out) {
  return {.name = fmt::format("linear_{}x{}x{}", rows, in, out),
          .inputs = {{{rows, in}}, {{out, in}}},
          .f = [](std::span<const Var> v) { return linear(v[0], v[1]); },
          .reference =
              [=](std::span<const Doubles> v) { return product(false, true, rows, out, in, v[0], v[1]); },
          .adversarial = kDomains,
          .thread_invariant = false};
}

/// With a bias; `twice`: both products into the same gradients.
OpCase bias_case(std::int64_t rows, std::int64_t in, std::int64_t out, bool twice) {
  const auto once = [=](std::span<const Doubles> v) {
    Doubles y = product(false, true, rows, out, in, v[0], v[1]);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += v[2][i % v[2].size()];
    return y;
  };
  return {.name = fmt::format("linear_bias{}_{}x{}x{}", twice ? "_twice" : "", rows, in, out),
          .inputs = {{{rows, in}}, {{out, in}}, {{out}}},
          .f =
              [=](std::span<const Var> v) {
                const Var y = linear(v[0], v[1], v[2]);
                return twice ? add(y, linear(v[0], v[1], v[2])) : y;
              },
          .reference =
              [=](std::span<const Doubles> v) {
                Doubles y = once(v);
                for (double& e : y) e *= twice ? 2 : 1;
                return y;
              },
          .adversarial = {Domain::large, Domain::equal, Domain::spread},
          .thread_invariant = false};
}

/// The kernel itself, in each of its forms; `add` adds to what is there, the third input.
OpCase matmul_case(bool ta, bool tb, bool add, std::int64_t m, std::int64_t n, std::int64_t k) {
  const Shape a = ta ? Shape{k, m} : Shape{m, k}, b = tb ? Shape{n, k} : Shape{k, n};
  const auto f = [=](std::span<const Var> v) {
    const Tensor c = v[2].value().clone();
    dispatch(c.device(), c.dtype(), "matmul", [&]<class T>(auto& q) {
      const kernels::Matmul<T> product{
          {ta, tb, m, n, k}, v[0].value().data<T>(), v[1].value().data<T>(), nullptr, c.data<T>(), add};
      const Storage workspace = Storage::allocate(c.device(), kernels::matmul_workspace(q, product));
      kernels::matmul(q, product, workspace.data());
    });
    return Var::constant(c);
  };
  const auto reference = [=](std::span<const Doubles> v) {
    Doubles c = product(ta, tb, m, n, k, v[0], v[1]);
    for (std::size_t i = 0; add && i < c.size(); ++i) c[i] += v[2][i];
    return c;
  };
  return {
      .name = fmt::format("matmul_{}{}_{}_{}x{}x{}", ta ? "t" : "n", tb ? "t" : "n",
                          add ? "adds" : "overwrites", m, n, k),
      .inputs = {{.shape = a, .grad = false}, {.shape = b, .grad = false}, {.shape = {m, n}, .grad = false}},
      .f = f,
      .reference = reference,
      .thread_invariant = false};
}

/// A tensor that begins one element behind an allocation's begin, as parameters do in their flat buffer.
Tensor moved(const Tensor& t) {
  const Tensor part = Tensor::empty({t.size() + 1}, t.dtype(), t.device()).slice(1, t.shape());
  part.copy_from(t);
  return part;
}
/// Operands and a bias whose alignment is an element's.
OpCase unaligned_case(std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto f = [=](std::span<const Var> v) {
    const Tensor a = moved(v[0].value()), b = moved(v[1].value()), bias = moved(v[2].value()),
                 c = moved(Tensor::empty({m, n}, a.dtype(), a.device()));
    dispatch(c.device(), c.dtype(), "matmul", [&]<class T>(auto& q) {
      const kernels::Matmul<T> product{{false, false, m, n, k}, a.data<T>(), b.data<T>(),
                                       bias.data<T>(),          c.data<T>(), false};
      const Storage workspace = Storage::allocate(c.device(), kernels::matmul_workspace(q, product));
      kernels::matmul(q, product, workspace.data());
    });
    return Var::constant(c);
  };
  const auto reference = [=](std::span<const Doubles> v) {
    Doubles c = product(false, false, m, n, k, v[0], v[1]);
    for (std::size_t i = 0; i < c.size(); ++i) c[i] += v[2][i % v[2].size()];
    return c;
  };
  return {.name = fmt::format("matmul_unaligned_{}x{}x{}", m, n, k),
          .inputs = {{.shape = {m, k}, .grad = false},
                     {.shape = {k, n}, .grad = false},
                     {.shape = {n}, .grad = false}},
          .f = f,
          .reference = reference,
          .thread_invariant = false};
}

TEST(Matmul, RoundsOperandsToTf32OnlyWhereTheQueueSaysSo) {
  if (!available(Device::cuda))
    GTEST_SKIP() << "no CUDA device, and the kernels do not run on the host in this build";
  if constexpr (build::has_cuda) {
    const auto once = [](bool tf32) {
      cuda_queue().tf32 = tf32;
      const Var x = Var::constant(Tensor::full({16, 64}, 1 + 0x1p-13, DType::f32, Device::cuda));
      const double y = values_of(linear(x, x).value())[0];
      cuda_queue().tf32 = false;
      return y;
    };
    EXPECT_NEAR(once(false), 64 * (1 + 0x1p-12), 1e-3);
    EXPECT_EQ(once(true), 64);
  }
}

}  // namespace

std::vector<OpCase> matmul_cases() {
  std::vector<OpCase> cases = {linear_case(3, 5, 4),    linear_case(1, 1, 1),      linear_case(31, 33, 1),
                               linear_case(1, 129, 31), linear_case(127, 33, 129), linear_case(0, 4, 3),
                               linear_case(4, 0, 3),    linear_case(4, 3, 0)};
  for (bool twice : {false, true}) {
    cases.push_back(bias_case(5, 7, 3, twice));
    cases.push_back(bias_case(67, 33, 65, twice));
    cases.push_back(bias_case(0, 4, 3, twice));
    cases.push_back(bias_case(4, 0, 3, twice));
  }
  cases.push_back(unaligned_case(5, 7, 3));
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (bool add : {false, true}) {
        cases.push_back(matmul_case(ta, tb, add, 5, 7, 3));
        cases.push_back(matmul_case(ta, tb, add, 65, 130, 67));
      }
  return cases;
}

}  // namespace ssn::test
