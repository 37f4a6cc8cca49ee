#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "autograd/range_set.h"
#include "autograd/var.h"

namespace ssn {

/// Where in the flat buffers a parameter lies, and what it counts as. The budget is the sum of the groups.
enum class Section : std::uint8_t { group, mask, ordinary, coefficient };

/// All trainable parameters of a network in one flat buffer, all gradients in a second: whatever costs per
/// parameter (optimizer, sum over the ranks, checkpoint) runs over these. Groups come first, each starting at
/// a multiple of 16 elements; everything else follows without gaps, so that it is summed in one piece. Gaps
/// stay zero.
class Parameters {
 public:
  /// The start value of element `index`, a function of the index alone.
  using Init = std::function<double(std::int64_t index)>;
  struct Entry {
    std::string name;
    Shape shape;
    Section section;
    bool decay;
    Init init;
    Var leaf;
    FlatRange range;  // after build()
  };
  struct Buffer {  // a state that is not trained: running statistics
    std::string name;
    Tensor tensor;
  };

  explicit Parameters(DType dtype = DType::f32, Device device = Device::cpu)
      : dtype_(dtype), device_(device) {}
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  /// Asks for a parameter before build(). Names are unique. The leaf has its tensor after build().
  Var add(std::string name, const Shape& shape, Section section, bool decay, Init init);
  /// A state beside the parameters, filled with `value`; kept in the order of the calls.
  Tensor add_buffer(std::string name, const Shape& shape, double value);
  /// Lays everything out and initialises it. `allocate` provides the gradient's bytes (the communicator's
  /// choice of memory).
  void build(const std::function<Storage(std::size_t bytes)>& allocate = {});

  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<Buffer>& buffers() const { return buffers_; }
  const Entry& entry(std::string_view name) const;
  /// Flat, with the gaps; and the number of parameters in a section, or trainable in all, without them.
  Tensor values() const { return values_; }
  Tensor gradients() const { return gradients_; }
  std::int64_t count(Section section) const;
  std::int64_t total() const;
  /// The stretches without gaps: one a group, then one for all the rest. Their sizes add up to total().
  const std::vector<FlatRange>& stretches() const { return stretches_; }
  /// The longest ranges that have the same decay.
  std::vector<FlatRange> ranges(bool decay) const;

  void zero_gradients();
  /// Counts the changes of the values: what is computed from them is valid for one version.
  std::uint64_t version() const { return version_; }
  void values_changed() { ++version_; }

 private:
  DType dtype_;
  Device device_;
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::vector<Buffer> buffers_;
  std::vector<FlatRange> stretches_;
  Tensor values_, gradients_;
  std::uint64_t version_ = 0;
};

}  // namespace ssn
