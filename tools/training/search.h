#pragma once
#include <nlohmann/json.hpp>

#include "tools/training/task.h"

// The preliminary step that learns which layers share their parameters (paper section 3.3).
namespace ssn {

/// What it is trained as: one group the size of the largest layer, four templates resized to each layer's
/// shape, coefficients by embeddings (or the layers' own, if the configuration combines by these), and of the
/// epochs a tenth (at least one) or as many as the configuration says; gains only if asked for; all else,
/// also the shape of the schedule, as in the training that is to follow.
TrainConfig search_config(const TrainConfig& config);

/// The threads of the preliminary training, of which its bits depend. They do not depend on the ranks: as
/// many as the configuration says, or as are useful for a whole batch, but no more than the node has cores.
std::int64_t search_threads_of(const TrainConfig& config, const Plan& plan, const InputShape& input);

struct Search {
  Labels labels;                   // of every layer
  nlohmann::ordered_json mapping;  // the same and how it was found, as in a mapping file
  std::int64_t threads = 0;        // of the preliminary training; 0: there was none
  double seconds = 0;
  bool stopped = false;  // a signal reached a rank that was waiting: the caller is to end here
};
/// Trains on `set` as search_config says and puts layers whose embeddings or coefficients are near each other
/// into one group, by k-means; `config.groups` groups, at most one a layer. Nothing is to be learned if that
/// is one group, or one a layer. Rank 0 does it alone and the others sleep: the result is a function of the
/// configuration, the data and the threads. Collective. A signal to rank 0 ends it with an Error on all
/// ranks.
Search search_mapping(Comm& comm, const TrainConfig& config, const Dataset& dataset, const Samples& set);

/// "3 groups in 4.1 s, test error@1 9.1%", and a line a group with its layers.
std::string groups_text(const Search& search);
/// A mapping file: a line a layer; the notes with a line a layer, too.
std::string mapping_text(const nlohmann::ordered_json& mapping);

}  // namespace ssn
