#pragma once
#include <dnnl_debug.h>

#include <algorithm>
#include <dnnl.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "runtime/error.h"

// What our kernels share of oneDNN, whose versions 2 and 3 both serve.
namespace ssn::kernels::onednn {

inline const dnnl::engine& engine() {
  static const auto& engine = *new dnnl::engine(dnnl::engine::kind::cpu, 0);  // outlives static plans
  return engine;
}

inline const dnnl::stream& stream() {
  thread_local const dnnl::stream stream(engine());
  return stream;
}

/// Memory over data of the caller; oneDNN does not write through it unless it is an output.
inline dnnl::memory over(const dnnl::memory::desc& desc, const void* data) {
  return {desc, engine(), const_cast<void*>(data)};
}

/// Runs f; an error of oneDNN becomes ours and names what was asked for: `subject()`, called only then.
template <class Subject, class F>
decltype(auto) guarded(Where where, Subject&& subject, F&& f) {
  try {
    return f();
  } catch (const dnnl::error& e) {
    fail(where, "oneDNN: {} ({}), for {}", e.what(), dnnl_status2str(e.status), subject());
  }
}

/// The descriptor of primitive P for an operation's arguments. Backward primitives take the forward's
/// descriptor as a hint: std::tie(forward); others std::tie(). Version 2 wraps the arguments in an operation
/// descriptor, which version 3 no longer has.
template <class P, class... Hint, class... A>
typename P::primitive_desc describe(const dnnl::primitive_attr& attr, const std::tuple<Hint&...>& hints,
                                    const A&... a) {
  return std::apply(
      [&](const auto&... hint) {
        if constexpr (requires { typename P::desc; })
          return typename P::primitive_desc(typename P::desc(a...), attr, engine(), hint...);
        else
          return typename P::primitive_desc(engine(), a..., hint..., attr);
      },
      hints);
}

/// Plans by key, the most recently used ones. Thread-safe; a plan stays valid while it is held.
template <class Key, class Plan>
class PlanCache {
 public:
  explicit PlanCache(std::size_t capacity) : capacity_(capacity) {}

  template <class Make>
  std::shared_ptr<const Plan> get(const Key& key, Make&& make) {
    const std::lock_guard lock(mutex_);
    auto it = entries_.find(key);
    if (it == entries_.end()) {
      auto plan = std::make_shared<const Plan>(make());
      if (entries_.size() >= capacity_) entries_.erase(oldest());
      it = entries_.emplace(key, Entry{std::move(plan), 0}).first;
    }
    it->second.used = ++clock_;
    return it->second.plan;
  }

 private:
  struct Entry {
    std::shared_ptr<const Plan> plan;
    std::uint64_t used;
  };
  auto oldest() const {
    return std::min_element(entries_.begin(), entries_.end(),
                            [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
  }

  std::mutex mutex_;
  std::size_t capacity_;
  std::uint64_t clock_ = 0;
  std::map<Key, Entry> entries_;
};

}  // namespace ssn::kernels::onednn
