#include "tools/exchange/take_weights.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "ssn/fit.h"
#include "tools/exchange/weights_file.h"

namespace ssn {
namespace {

/// What files of the same networks have beside their weights: counters, numbers of places, matrices that are
/// the embeddings', and heads that predicting masked tokens does not need.
constexpr std::string_view kLeftOut[] = {".num_batches_tracked", ".position_ids", ".token_type_ids",
                                         ".decoder.weight", ".decoder.bias"};
constexpr std::string_view kLeftOutParts[] = {"data/", "bert.pooler.", "albert.pooler.",
                                              "cls.seq_relationship.", "sop_classifier."};

bool left_out(std::string_view name) {
  return std::ranges::any_of(kLeftOut, [&](std::string_view end) { return name.ends_with(end); }) ||
         std::ranges::any_of(kLeftOutParts, [&](std::string_view start) { return name.starts_with(start); });
}

/// "a, b, c and 4 more"
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 6;
  const std::size_t shown = std::min(names.size(), kShown);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<long>(shown), ", "));
  return names.size() > shown ? fmt::format("{} and {} more", text, names.size() - shown) : text;
}

bool finite(const Tensor& tensor) {
  return std::ranges::all_of(tensor.span<float>(), [](float x) { return std::isfinite(x); });
}

bool has_fractions(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::bf16;
}

/// A file's tensors by the names that it gives to a network's.
class WeightSource {
 public:
  WeightSource(Archive archive, const std::vector<DenseTensor>& wanted) : archive_(std::move(archive)) {
    unwrap();
    const auto known = [&](TensorNames names) {
      return std::ranges::count_if(
          wanted, [&](const DenseTensor& t) { return archive_.tensors.contains(t.name(names)); });
    };
    if (known(TensorNames::own) > known(TensorNames::torch)) names_ = TensorNames::own;
  }
  /// The tensor as f32; none, and a note of what is wrong with it, if it cannot be used.
  Tensor take(const DenseTensor& wanted, WeightLayout layout) {
    const std::string& name = wanted.name(names_);
    const auto it = archive_.tensors.find(name);
    if (it == archive_.tensors.end()) return missing_.push_back(name), Tensor();
    const Tensor found = it->second;
    archive_.tensors.erase(it);
    const Shape shape = wanted.layer < 0 ? wanted.shape : shape_in(wanted.shape, layout);
    const auto wrong = [&](const std::string& what) {
      wrong_.push_back(fmt::format("{} {}", name, what));
      return Tensor();
    };
    if (found.shape() != shape)
      return wrong(fmt::format("is {}, expected {}", found.shape().text(), shape.text()));
    if (!has_fractions(found.dtype())) return wrong(fmt::format("holds {}", name_of(found.dtype())));
    const Tensor value = found.to(DType::f32);
    if (!finite(value)) return wrong("has values that are not finite");
    return wanted.layer < 0 ? value : from_layout(value, wanted.shape, layout);
  }
  /// After all are taken.
  void check_all_fits(const std::string& path, const std::string& network) const {
    std::vector<std::string> problems, extra;
    for (const auto& [name, tensor] : archive_.tensors)
      if (!left_out(name)) extra.push_back(name);
    if (!missing_.empty()) problems.push_back("missing: " + some_of(missing_));
    if (!extra.empty()) problems.push_back("not of the network: " + some_of(extra));
    if (!wrong_.empty()) problems.push_back("cannot be used: " + some_of(wrong_));
    check(problems.empty(), "weights", "{} does not fit {}: {}", path, network, fmt::join(problems, "; "));
  }

 private:
  /// Takes off what programs put in front of all names that train on several devices.
  void unwrap() {
    constexpr std::string_view kWrapper = "module.";
    const auto wrapped = [&](const auto& item) { return item.first.starts_with(kWrapper); };
    if (archive_.tensors.empty() || !std::ranges::all_of(archive_.tensors, wrapped)) return;
    std::map<std::string, Tensor> plain;
    for (auto& [name, tensor] : archive_.tensors) plain[name.substr(kWrapper.size())] = tensor;
    archive_.tensors = std::move(plain);
  }

  Archive archive_;
  TensorNames names_ = TensorNames::torch;
  std::vector<std::string> missing_, wrong_;
};

bool is_checkpoint(const Archive& archive) {
  return archive.tensors.contains("parameters/group0");
}

/// The weights that a checkpoint's network has.
Archive generated(const Archive& checkpoint, const std::string& path) {
  TrainConfig config = stored_config(checkpoint, path);
  config.weights = name_of(WeightPolicy::eager);
  Model model = stored_model(checkpoint, config, stored_facts(checkpoint).input, Device::cpu);
  check_plan(model, checkpoint);
  SoloComm alone;
  model.build(alone);
  restore_for_use(model, checkpoint);
  Archive out = dense_weights(model, config.model, TensorNames::own, WeightLayout::oihw);
  for (auto& [name, tensor] : out.tensors) tensor = tensor.clone();  // the model goes
  return out;
}

}  // namespace

double Taken::root_mean_square() const {
  double sum = 0;
  for (const double e : errors) sum += e * e;
  return errors.empty() ? 0 : std::sqrt(sum / static_cast<double>(errors.size()));
}

bool Taken::exact() const {
  return std::ranges::all_of(errors, [](double e) { return e == 0; });
}

Taken take_weights(Model& model, const std::string& name, const std::string& path, WeightLayout layout) {
  Archive archive = read_weights(path);
  if (archive.attributes.contains("layout"))
    layout = value_named<WeightLayout>(archive.attribute<std::string>("layout"));
  const std::vector<DenseTensor> wanted = dense_tensors(model, name);
  if (is_checkpoint(archive)) {
    if (archive.attribute<std::string>("plan") == model.plan_json().dump()) {
      restore_for_use(model, archive);
      return {wanted.size(), std::vector<double>(model.plan().layers.size(), 0)};
    }
    archive = generated(archive, path);
    layout = WeightLayout::oihw;
  }
  WeightSource source(std::move(archive), wanted);
  std::vector<Tensor> values;
  for (const DenseTensor& t : wanted) values.push_back(source.take(t, layout));
  source.check_all_fits(path, name);
  std::vector<Tensor> targets;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i].layer >= 0)
      targets.push_back(values[i]);
    else
      wanted[i].tensor.copy_from(values[i]);
  }
  return {wanted.size(), fit_weights(model.weights, model.parameters, targets)};
}

std::string text(const Taken& taken, const Plan& plan, const std::string& path) {
  if (taken.exact()) return fmt::format("{}: {} tensors, taken as they are", path, taken.tensors);
  std::string out =
      fmt::format("{}: {} tensors, to which {} shared parameters are fitted\n\n{:<44} {:>6} {:>14}\n", path,
                  taken.tensors, plan.budget, "layer", "group", "relative error");
  for (std::size_t i = 0; i < plan.layers.size(); ++i)
    out +=
        fmt::format("{:<44} {:>6} {:>14.4f}\n", plan.layers[i].name, plan.layers[i].group, taken.errors[i]);
  return out + fmt::format("{:<44} {:>6} {:>14.4f}", "root mean square of all layers", "",
                           taken.root_mean_square());
}

}  // namespace ssn
