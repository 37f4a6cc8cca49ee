#include "tools/training/config.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "kernels/conv.h"
#include "layers/models/zoo.h"
#include "runtime/binding.h"
#include "runtime/dispatch.h"
#include "runtime/flavour.h"
#include "runtime/log.h"
#include "runtime/parallel.h"
#include "tools/training/task.h"

namespace ssn {

void add_network_options(Options& options, TrainConfig& c) {
  options.section("Network and data")
      .add("model", c.model, "NAME", fmt::format("network: {}", fmt::join(network_names(), ", ")))
      .add("data", c.data, "NAME[:PATH]", fmt::format("data set: {}", fmt::join(dataset_names(), ", ")))
      .add("input", c.input, "CxHxW", "resize the images once, at loading; files of images, whenever used")
      .show_default("as they are; 3x224x224 for files of images")
      .add("length", c.length, "N", "text: tokens of a sequence", between(3, 1 << 16))
      .add("vocab", c.vocab, "FILE", "text: the vocabulary, a piece a line, as BERT's vocab.txt")
      .show_default("built from the training text")
      .add("vocab-size", c.vocab_size, "N", "text: pieces of the vocabulary that is built, at most",
           between(0, 1 << 24))
      .show_default("8000")
      .add("cased", c.cased, "text: as it is written, not lower-cased and without accents");
  options.section("Parameter sharing")
      .add("budget", c.budget, "B",
           "parameters in the groups: a share of what can be shared (25%, 0.25x), a number (97K, 4M), "
           "largest (layer of each group), or dense (nothing is shared)")
      .add("count", c.count, "WHAT", "what the budget covers: the groups, or everything that is trained",
           names_of<Count>())
      .add("baseline", c.baseline, "NAME",
           "for comparisons: reduced (a narrower network without sharing), swrn (soft sharing of layers "
           "of one shape)",
           {"none", "reduced", "swrn"})
      .add("mapping", c.mapping, "NAME|FILE",
           "how layers get their group: single, random, shape, type, albert (the same layer of all blocks), "
           "learned, or a mapping file (ssn map)")
      .add("groups", c.groups, "P", "parameter groups, with --mapping random and learned",
           between(0, 1 << 20))
      .show_default("what the mapping gives")
      .add("combine", c.combine, "NAME", "how templates become a weight", names_of<Combine>())
      .add("templates", c.templates, "K", "the most templates that make a layer's weight",
           between(1, 1 << 20))
      .add("embedding", c.embedding, "E", "elements of a layer's embedding, with --combine emb",
           between(1, 1 << 20))
      .add("allocation", c.allocation, "NAME", "where a layer's templates lie", names_of<Allocation>())
      .add("upsample", c.upsample, "NAME", "how a group becomes a weight larger than itself",
           names_of<Upsample>())
      .add("window", c.window, "N", "parameters of a mask", between(1, 1 << 20))
      .add("masks", c.masks, "WHOSE", "masks are the group's, or each layer's own", names_of<MaskScope>())
      .add("mask-init", c.mask_init, "NAME", "start values of masks", names_of<MaskInit>())
      .add("inter", c.inter, "RULE", "the matrix that --upsample inter takes a group as", names_of<Inter>())
      .add("gain", c.gain, "WHEN",
           "a fixed factor gives weights the deviation they would start with unshared; auto: where no norm "
           "follows and they would start larger",
           names_of<Gain>())
      .add("near", c.near, "W",
           "with --mapping learned: prefer groups of layers that follow each other, whose gradients are "
           "complete "
           "earlier; 1: the first and the last layer differ by their places as much as layers do otherwise",
           between(0, 1000))
      .add("search-epochs", c.search_epochs, "EPOCHS",
           "length of the preliminary training of --mapping learned, rounded up to whole epochs",
           between(0, 1e9))
      .show_default("a tenth of --epochs")
      .add("weights", c.weights, "POLICY",
           "generated weights are kept for a step, or generated anew to save memory; same bits, but what is "
           "measured (on a GPU: all) to rounding",
           names_of<WeightPolicy>());
}

namespace {

void add_step_options(Options& options, TrainConfig& c) {
  options.section("Training")
      .add("init", c.init, "FILE",
           "start from these weights: a checkpoint of any budget, what ssn export wrote, or PyTorch's names "
           "in HDF5, safetensors or npz; shared parameters are fitted to them")
      .show_default("none")
      .add("epochs", c.epochs, "N", "passes over the training set", between(1, 1e9))
      .show_default("60 for digits, otherwise 200")
      .add("batch", c.batch, "N", "samples a step, over all ranks", between(1, 1 << 30))
      .show_default("32 below 5,000 training samples, 64 below 20,000, otherwise 128")
      .add("micro-batches", c.micro_batches, "N",
           "parts of each rank's batch, one after another, to save memory", between(1, 1 << 20))
      .add("precision", c.precision, "TYPE",
           "of what is computed in forward and backward (tf32: of products and convolutions on a GPU); "
           "parameters, sums, optimizer and the generation of weights are f32 always",
           {"f32", "tf32", "bf16"})
      .add("recompute", c.recompute, "SEGMENTS",
           "computed again in backward instead of kept, to save memory, with the same result: none, all, or "
           "names of blocks or their beginnings, such as block1,block2.layer.0")
      .add("memory", c.memory, "SIZE",
           "limit of a rank's tensors beside the data, such as 800M or 4G: recompute as few blocks as that "
           "takes")
      .show_default("no limit");
}

void add_optimizer_options(Options& options, TrainConfig& c) {
  options
      .add("optimizer", c.optimizer, "NAME", "adam's decay is part of the gradient, adamw's is not",
           names_of<OptimizerKind>())
      .add("lr", c.lr, "X", "learning rate", above(0))
      .show_default("sgd 0.1; adam, adamw 0.001; lamb 0.005; rmsprop 0.016")
      .add("decay", c.decay, "X",
           "weight decay; not of the phi and alpha that combine templates, nor of a transformer's norms and "
           "biases",
           at_least(0))
      .show_default("sgd 0.0005; adam 0; adamw, lamb 0.01; rmsprop 0.00001")
      .add("momentum", c.momentum, "X", "of sgd and rmsprop", half_open(0, 1))
      .add("nesterov", c.nesterov, "sgd: take the gradient where the momentum leads")
      .add("beta1", c.beta1, "X", "of adam, adamw, lamb: share of the past in the mean of gradients",
           half_open(0, 1))
      .add("beta2", c.beta2, "X", "of all but sgd: share of the past in the mean of squared gradients",
           half_open(0, 1))
      .show_default("0.999; rmsprop 0.9")
      .add("epsilon", c.epsilon, "X", "of all but sgd: added to that mean's root (rmsprop: inside the root)",
           above(0))
      .show_default("1e-8; lamb 1e-6; rmsprop 0.001")
      .add("clip", c.clip, "X", "the most that the gradient's norm may be; a longer one is scaled down",
           at_least(0))
      .show_default("none")
      .add("on-nonfinite", c.on_nonfinite, "WHAT",
           "where a step's loss or gradient is not finite: stop, or skip the step on all ranks",
           {"stop", "skip"})
      .add("warmup", c.warmup, "EPOCHS", "epochs in which the learning rate rises from 0", at_least(0))
      .add("schedule", c.schedule, "NAME", "of the learning rate after that", names_of<ScheduleKind>())
      .add("final-lr", c.final_lr, "X", "cosine, linear: the rate at the end", at_least(0))
      .add("lr-steps", c.lr_steps, "E,E,...", "steps: epochs after which the learning rate falls")
      .add("lr-factor", c.lr_factor, "X", "steps, exponential: by this factor",
           {.min = 0, .max = 1, .open = true})
      .show_default("0.2; exponential 0.97")
      .add("lr-every", c.lr_every, "EPOCHS",
           "exponential: it falls this often; 0: with every step, by the "
           "factor in an epoch",
           at_least(0))
      .add("ema", c.ema, "X",
           "share of the past in a moving average of the weights, which is then what is measured and kept",
           half_open(0, 1))
      .show_default("none")
      .add("patience", c.patience, "EPOCHS",
           "end the run after so many without a better validation error, with the best network's result",
           between(0, 1e9))
      .show_default("none")
      .add("label-smoothing", c.label_smoothing, "X", "probability taken from the true class",
           half_open(0, 1));
}

void add_data_options(Options& options, TrainConfig& c) {
  options.section("Data")
      .add("flip", c.flip, "mirror every second training image")
      .show_default("as usual for the data")
      .add("crop", c.crop, "PIXELS", "shift training images by up to this much", between(0, 1 << 20))
      .show_default("as usual for the data")
      .add("cutout", c.cutout, "PIXELS", "side of a square that is blanked in training images",
           between(0, 1 << 20))
      .add("crop-area", c.crop_area, "SHARE",
           "files of images: the least share of one that is cut out at random for training; its aspect is "
           "between 3/4 and 4/3",
           between(0.01, 1))
      .add("validation", c.validation, "SHARE",
           "of the training set held out; the best network on it is kept", between(0, 0.9))
      .add("eval-every", c.eval_every, "EPOCHS", "between evaluations; 0: at the end only", between(0, 1e9))
      .show_default("5; with --patience 1");
  add_reading_options(options, c.data_threads, c.skip_bad);
}

void add_checkpoint_options(Options& options, TrainConfig& c) {
  options.section("Checkpoints")
      .add("save-every", c.save_every, "STEPS", "checkpoints beside those at the end of every epoch",
           between(0, 1e15))
      .show_default("none")
      .add("keep", c.keep, "N", "checkpoints in all: the newest, and those before it as checkpoint-<step>.h5",
           between(1, 1 << 30))
      .add("on-save-failure", c.on_save_failure, "WHAT",
           "where a checkpoint cannot be written: stop, or continue and try again at the next one",
           {"stop", "continue"})
      .add("compress", c.compress, "smaller checkpoints, which take longer to write: shuffle and deflate");
}

void add_machine_options(Options& options, TrainConfig& c) {
  options.section("Machine")
      .add("device", c.device, "NAME", "where to compute", {"auto", "cpu", "cuda"})
      .show_default("the GPUs, where every rank has one of its own")
      .add("threads", c.threads, "N", "threads of each rank", between(0, kMostThreads))
      .show_default(
          "OMP_NUM_THREADS, or the rank's share of the cores, fewer for a small network; 1 with --shards")
      .add("shards", c.shards, "S",
           "divide every batch in so many parts, whatever the ranks: 1, 2, 4, ... S ranks then give the same "
           "bits. A power of two",
           between(0, 1 << 20))
      .show_default("off")
      .add("search-threads", c.search_threads, "N",
           "threads of the preliminary training, which one rank does", between(0, kMostThreads))
      .show_default("--threads, OMP_NUM_THREADS, or all cores, fewer for a small network")
      .add(
          "graph", c.graph, "WHEN",
          "on a GPU: record a step's work once and repeat it, where its shapes stay the same; the same bits, "
          "and less of the processor's time",
          {"on", "off"})
      .add("overlap", c.overlap, "WHEN",
           "sum the gradient over the ranks while backward goes on (where NCCL does it, or MPI on several "
           "nodes), or after it",
           {"on", "off"})
      .add("bucket", c.bucket, "KIB", "complete gradient that is gathered before its sum starts",
           between(1, 1 << 22))
      .add("wire", c.wire, "TYPE",
           "what the gradient travels as between nodes; bf16 halves the bytes and rounds to about 0.2%: each "
           "rank's (node's) part and their sum, which is added in f32",
           {"f32", "bf16"})
      .add("seed", c.seed, "N", "of all that is drawn: same seed, ranks and threads, same bits", at_least(0));
}

}  // namespace

void add_training_options(Options& options, TrainConfig& c) {
  add_step_options(options, c);
  add_optimizer_options(options, c);
  add_data_options(options, c);
  add_checkpoint_options(options, c);
  add_machine_options(options, c);
}

void add_run_options(Options& options, RunConfig& run) {
  options.section("This run")
      .add("out", run.out, "DIR", "directory of the run")
      .flag_only()
      .show_default("runs/<date>-<network>-<n>")
      .add("resume", run.resume, "FILE",
           "go on from this checkpoint, or that of this directory, with its options unless flags change them")
      .flag_only()
      .add("overwrite", run.overwrite, "replace the run that the directory holds")
      .flag_only()
      .add("stop-after", run.stop_after, "STEPS",
           "save and end after this step, counted from the first epoch", at_least(1))
      .flag_only()
      .show_default("")
      .add("timeout", run.timeout, "SECONDS",
           "end the run when a rank does not get on for so long while others wait for it; 0: never",
           at_least(0))
      .flag_only()
      .add("trace", run.trace, "FILE",
           "write where the time of all ranks went from the start, at most half a million spans, for "
           "ui.perfetto.dev")
      .flag_only()
      .add("json", run.json, "print the result as one JSON object")
      .flag_only()
      .add("quiet", run.quiet, "no progress on stderr")
      .flag_only();
}

std::int64_t usual_batch(std::int64_t samples) {
  return samples < 5000 ? 32 : samples < 20000 ? 64 : 128;
}

namespace {

/// Fills in what depends on the optimizer and was not given.
void use_defaults_of_optimizer(const Options& options, TrainConfig& c) {
  const auto kind = value_named<OptimizerKind>(c.optimizer);
  const OptimizerOptions usual = usual_options(kind);
  const double rates[] = {0.1, 0.001, 0.001, 0.005, 0.016};  // in the order of OptimizerKind
  if (!options.given("lr")) c.lr = rates[static_cast<int>(kind)];
  if (!options.given("decay")) c.decay = usual.decay;
  if (!options.given("beta2")) c.beta2 = usual.beta2;
  if (!options.given("epsilon")) c.epsilon = usual.epsilon;
  if (!options.given("lr-factor") && c.schedule == name_of(ScheduleKind::exponential)) c.lr_factor = 0.97;
}

void check_patience(const TrainConfig& c) {
  if (c.patience == 0) return;
  check_usage(c.validation > 0, "train",
              "--patience waits for a better validation error: give --validation, the share of the training "
              "set to hold out");
  check_usage(c.eval_every > 0, "train", "--patience needs evaluations: --eval-every is 0");
}

}  // namespace

void use_defaults_of(const Dataset& dataset, const Options& options, TrainConfig& c) {
  const bool digits = dataset.name == "digits";
  if (!options.given("epochs") && digits) c.epochs = 60;
  if (!options.given("batch")) c.batch = usual_batch(dataset.train->size());
  c.flip = dataset.augmentation.flip;
  c.crop = dataset.augmentation.crop_padding;
  if (!options.given("eval-every") && c.patience > 0) c.eval_every = 1;
  use_defaults_of_optimizer(options, c);
  check_patience(c);
  if (c.shards > 0 && c.threads == 0) c.threads = 1;  // the bits may depend on it
  check_usage(c.warmup <= static_cast<double>(c.epochs), "train",
              "--warmup {} is longer than the run: --epochs is {}", c.warmup, c.epochs);
  parse_epochs(c.lr_steps);
}

DatasetOptions dataset_options(const Comm& comm, const TrainConfig& c) {
  DatasetOptions data{.seed = static_cast<std::uint64_t>(c.seed),
                      .cutout = c.cutout,
                      .crop_area = c.crop_area,
                      .threads = data_threads(comm, c.data_threads),
                      .skip_bad = c.skip_bad};
  if (!c.input.empty()) data.input = ImageSize::parse(c.input);
  data.text = {.vocabulary = c.vocab, .vocabulary_size = c.vocab_size, .cased = c.cased, .length = c.length};
  return data;
}

DatasetOptions dataset_options(const Comm& comm, const TrainConfig& c, const Options& options) {
  DatasetOptions data = dataset_options(comm, c);
  if (options.given("flip")) data.flip = c.flip;
  if (options.given("crop")) data.crop_padding = c.crop;
  return data;
}

void add_reading_options(Options& options, std::int64_t& data_threads, bool& skip_bad) {
  options
      .add("data-threads", data_threads, "N", "files of images: threads of each rank that decode them",
           between(0, kMostThreads))
      .show_default("an eighth of the rank's cores, 1 at least")
      .add("skip-bad", skip_bad,
           "leave damaged files out instead of giving up, and say how many; of images, the next good ones "
           "take the place");
}

std::int64_t data_threads(const Comm& comm, std::int64_t given) {
  if (given > 0) return given;
  Placement placement = find_placement(comm.local_size());
  placement.requested = 0;
  return std::max(1, choose_threads(placement).threads / 8);
}

bool learns_mapping(const TrainConfig& c) {
  if (c.mapping != name_of(MappingKind::learned)) return false;
  check_usage(c.groups >= 1, "mapping", "--mapping learned needs --groups, the number of groups to find");
  return true;
}

void read_mapping_file(Comm& comm, TrainConfig& c) {
  if (parse_mapping(c.mapping).kind != MappingKind::file) return;
  std::string text;
  on_root(comm, [&] { text = nlohmann::json(read_labels(c.mapping)).dump(); });
  comm.broadcast(text);
  c.labels = parse_labels(text, c.mapping);
}

nlohmann::json stored_plan(const Archive& archive) {
  constexpr int kDeepest = 16;  // no plan is so deep, and the JSON library calls itself for each level
  const auto keep = [](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
    return depth < kDeepest;
  };
  auto plan = nlohmann::json::parse(archive.attribute<std::string>("plan"), keep, false);
  check(plan.is_object(), "checkpoint", "{}: its attribute plan is not a JSON object", archive.path);
  return plan;
}

void take_mapping(const Archive& archive, TrainConfig& c) {
  const nlohmann::json plan = stored_plan(archive), options = plan.value("options", nlohmann::json());
  const auto found = options.find("mapping");
  const std::string kind = found != options.end() && found->is_string() ? found->get<std::string>() : "";
  if (kind == name_of(MappingKind::file) || kind == name_of(MappingKind::learned)) c.labels = labels_of(plan);
}

TrainConfig stored_config(const Archive& archive, const std::string& path) {
  TrainConfig config;
  Options options("ssn train", "");
  add_network_options(options, config);
  add_training_options(options, config);
  options.read_text(archive.attribute<std::string>("config"), path);
  take_mapping(archive, config);
  return config;
}

PlanOptions plan_options(const TrainConfig& c) {
  const bool labelled = !c.labels.empty() && c.mapping != name_of(MappingKind::learned);
  // Once its labels are known, the file may be gone.
  Mapping mapping =
      labelled ? Mapping{.kind = MappingKind::file, .source = c.mapping} : parse_mapping(c.mapping);
  mapping.groups = static_cast<int>(c.groups);
  mapping.labels = c.labels;
  return {.budget = Budget::parse(c.budget),
          .count = value_named<Count>(c.count),
          .mapping = std::move(mapping),
          .combine = value_named<Combine>(c.combine),
          .upsample = value_named<Upsample>(c.upsample),
          .templates = static_cast<int>(c.templates),
          .embedding = c.embedding,
          .softmax = c.softmax,
          .inter = value_named<Inter>(c.inter),
          .window = c.window,
          .masks = value_named<MaskScope>(c.masks),
          .mask_init = value_named<MaskInit>(c.mask_init),
          .gain = value_named<Gain>(c.gain),
          .allocation = value_named<Allocation>(c.allocation),
          .seed = static_cast<std::uint64_t>(c.seed)};
}

OptimizerOptions optimizer_options(const TrainConfig& c) {
  return {.kind = value_named<OptimizerKind>(c.optimizer),
          .momentum = c.momentum,
          .nesterov = c.nesterov,
          .beta1 = c.beta1,
          .beta2 = c.beta2,
          .epsilon = c.epsilon,
          .decay = c.decay};
}

ReducerOptions reducer_options(const TrainConfig& c) {
  return {.bucket = c.bucket << 10, .overlap = c.overlap == "on"};
}

ScheduleOptions schedule_options(const TrainConfig& c) {
  return {.kind = value_named<ScheduleKind>(c.schedule),
          .lr = c.lr,
          .epochs = static_cast<double>(c.epochs),
          .warmup = c.warmup,
          .final_lr = c.final_lr,
          .milestones = parse_epochs(c.lr_steps),
          .factor = c.lr_factor,
          .every = c.lr_every};
}

Device choose_device(Comm& comm, std::string& device) {
  const bool chooses = device == "auto";
  if (chooses) {  // an emulated GPU is for tests
    const bool none = build::cuda_on_host || !available(Device::cuda);
    device = name_of(comm.agree(none) == 0 ? Device::cuda : Device::cpu);
  }
  if (device != name_of(Device::cuda)) return Device::cpu;
  try {
    comm.use_device(Device::cuda);
    return Device::cuda;
  } catch (const UsageError& error) {  // on all ranks
    if (!chooses) throw;
    info("on the CPU, for {}", error.what());
    device = name_of(Device::cpu);
    return Device::cpu;
  }
}

Device device_of(const TrainConfig& c) {
  return c.device == name_of(Device::cuda) ? Device::cuda : Device::cpu;
}

void check_precision(const TrainConfig& c) {
  if (device_of(c) == Device::cuda) {
    if constexpr (build::has_cuda) {
      const int found = cuda_compute_capability();
      check_usage(
          c.precision == "f32" || found >= 80, "precision",
          "--precision {} needs a GPU of compute capability 8.0 or newer, this one has {}.{}: use f32",
          c.precision, found / 10, found % 10);
    }
    return;
  }
  check_usage(c.precision != "tf32", "precision",
              "--precision tf32 is of NVIDIA's tensor cores: use --device cuda, or f32 or bf16 here");
  check_usage(c.precision != "bf16" || kernels::conv_takes_bf16(cpu_queue()), "precision",
              "--precision bf16 needs a processor with AVX-512: use f32");
}

void choose_threads(Comm& comm, std::int64_t& threads, std::int64_t most) {
  Placement placement = find_placement(comm.local_size());
  if (threads > 0) placement.requested = static_cast<int>(threads);
  const ThreadChoice choice = choose_threads(placement);
  threads = placement.requested > 0 ? choice.threads : std::min<std::int64_t>(choice.threads, most);
  set_num_threads(static_cast<int>(threads));
  // All ranks tend to be bound alike: the first one speaks for the others.
  const std::vector<int> warns = comm.allgather(static_cast<int>(!choice.warning.empty()));
  const auto first = std::find(warns.begin(), warns.end(), 1) - warns.begin();
  if (comm.rank() == first) warn("{}", choice.warning);
}

void choose_wire(Comm& comm, const TrainConfig& c) {
  const bool bf16_wanted = c.wire == name_of(DType::bf16);
  if (!comm.set_wire(bf16_wanted ? DType::bf16 : DType::f32) && bf16_wanted && comm.rank() == 0)
    warn("--wire bf16 changes nothing: {}",
         comm.size() == 1 ? "there is one rank" : "all ranks share memory, where sums are f32");
}

std::int64_t useful_threads(const Plan& plan, const InputShape& input, std::int64_t batch) {
  // Every weight meets every token, or every place of the image if nothing is strided: half the operations of
  // a forward pass, at most. The sample's small network has 0.4e9 a step, in which threads meet some 150
  // times.
  constexpr double kWorkOfAThread = 1e9;
  const double work = static_cast<double>(plan.shareable) * static_cast<double>(batch) *
                      static_cast<double>(std::max(input.length, input.size.height * input.size.width));
  return std::max<std::int64_t>(1, std::llround(std::min(work / kWorkOfAThread, 1e6)));
}

std::int64_t parts_of_rank(const TrainConfig& c, std::int64_t ranks) {
  return c.shards > 0 ? std::max<std::int64_t>(1, c.shards / ranks) : c.micro_batches;
}

namespace {

void check_shards(const Comm& comm, const TrainConfig& c) {
  const auto power_of_two = [](std::int64_t n) { return std::has_single_bit(static_cast<std::uint64_t>(n)); };
  check_usage(power_of_two(c.shards), "train",
              "--shards {}: they are added in a binary tree, so their number must be a power of two, such as "
              "{}",
              c.shards, std::bit_floor(static_cast<std::uint64_t>(c.shards)));
  check_usage(
      power_of_two(comm.size()) && comm.size() <= c.shards, "train",
      "--shards {} can be divided over 1, 2, 4, ... {} ranks, found {}: start another number of ranks",
      c.shards, c.shards, comm.size());
  check_usage(device_of(c) == Device::cpu || comm.sums_as_tree(Device::cuda), "train",
              "--shards {}: NCCL adds in an order of its own. Set SSN_SUM=window, or on several nodes "
              "hierarchical or allreduce: then the gradient is summed in the processors' memory",
              c.shards);
  check_usage(
      comm.sums_as_tree(), "train",
      "--shards {}: the nodes have no equal power of two of ranks, one after another: start them so, or "
      "set SSN_SUM=allreduce",
      c.shards);
  check_usage(c.wire == name_of(DType::f32), "train",
              "--wire {}: leave it out with --shards, it rounds between ranks only", c.wire);
  check_usage(c.micro_batches == 1, "train",
              "--micro-batches {}: leave it out, a rank computes its shards one after another",
              c.micro_batches);
}

}  // namespace

void check_parts(const Comm& comm, const TrainConfig& c, std::int64_t training_samples) {
  if (c.shards > 0) check_shards(comm, c);
  const std::int64_t step = std::min(c.batch, training_samples), parts = parts_of_rank(c, comm.size());
  check_usage(step >= comm.size() * parts, "train",
              "a step has {} samples, too few for {} rank(s) with {} part(s) each: raise --batch ({}) or "
              "lower --{}",
              step, comm.size(), parts, c.batch, c.shards > 0 ? "shards" : "micro-batches");
}

std::vector<double> parse_epochs(const std::string& text) {
  std::vector<double> epochs;
  const char *at = text.data(), *end = at + text.size();
  for (bool more = true; more;) {
    double epoch = 0;
    const auto [stop, error] = std::from_chars(at, end, epoch);
    more = error == std::errc() && stop != end && *stop == ',';
    const bool rising = epoch > (epochs.empty() ? 0.0 : epochs.back());
    check_usage(error == std::errc() && rising && (more || stop == end), "train",
                "--lr-steps: expected rising epochs such as 60,120,160, found '{}'", text);
    epochs.push_back(epoch);
    at = stop + 1;
  }
  return epochs;
}

}  // namespace ssn
