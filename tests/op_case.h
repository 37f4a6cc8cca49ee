#pragma once
#include <functional>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "tests/close.h"

// One operation is rows of data: what it computes on Vars, and the same thing written naively over doubles.
// From a row the harness (op_test.cpp) checks:
//   reference     f64 on the CPU against `reference`
//   gradient      f64: the closure's gradients against central differences, for a random gradient of the
//   output precision     f32 against f64, output and gradients adversarial   f32 against `reference` on each
//   of `adversarial`'s domains repeat        twice, and on 1, 2 and 3 threads: the same bits; nothing written
//   past the end of a storage cuda          (where a device is, or kernels/cuda runs on the host) against the
//   CPU, f32 and f64; twice, and on the host
//                 under every schedule of threads and blocks: the same bits
namespace ssn::test {

using Doubles = std::vector<double>;

/// How an input is drawn. All values are exact in f32.
enum class Domain {
  normal,        // mean 0, deviation 1
  positive,      // in [0.5, 1.5]
  distinct,      // a shuffled ladder without ties, away from 0: for operations with kinks
  all_negative,  // in [−2, −0.1]
  large,         // ±1e4
  equal,         // all 0.5
  spread,        // magnitudes from 1e-4 to 1e4, any sign
};

struct Input {
  Shape shape;
  Domain domain = Domain::normal;
  bool grad = true;
};

struct OpCase {
  std::string name;  // letters, digits and _: "batch_norm_relu_33x7"
  std::vector<Input> inputs;
  std::function<Var(std::span<const Var>)> f;
  std::function<Doubles(std::span<const Doubles>)> reference;
  std::vector<Domain> adversarial = {};  // replaces the domain of every input that wants a gradient
  double f64_tolerance = 1e-11;          // of the largest element of the output
  double f32_tolerance = 2e-5;           // of the largest element of each output and gradient
  double step = 1e-4;                    // of the central differences; smaller where a kink may be near
  bool cuda_on_host = true;              // false: takes long where CUDA kernels run on the host
  bool cuda_f64 = true;                  // false: has none in f64
  bool thread_invariant = true;          // false: a library's result may depend on the number of threads
};

// One function a file of tests/cases; op_test.cpp runs them all.
void PrintTo(const OpCase& c, std::ostream* out);  // the name, and a line that reruns the case

std::vector<OpCase> math_cases();
std::vector<OpCase> shape_cases();
std::vector<OpCase> norm_cases();
std::vector<OpCase> pool_cases();
std::vector<OpCase> loss_cases();
std::vector<OpCase> conv_cases();
std::vector<OpCase> matmul_cases();
std::vector<OpCase> generate_cases();
std::vector<OpCase> generated_linear_cases();
std::vector<OpCase> resize_cases();
std::vector<OpCase> scale_cases();
std::vector<OpCase> dropout_cases();
std::vector<OpCase> optimizer_cases();
std::vector<OpCase> layer_norm_cases();
std::vector<OpCase> embedding_cases();
std::vector<OpCase> attention_cases();
std::vector<OpCase> augment_cases();

/// An input's values, drawn from (seed, index).
Doubles draw(const Input& input, Domain domain, std::uint64_t index);

}  // namespace ssn::test
