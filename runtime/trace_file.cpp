#include "runtime/trace_file.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/checkpoint.h"

namespace ssn {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max() / 2;

/// What ranks tell each other before the events.
struct RankSummary {
  std::int64_t first = kNever;  // of rank 0's clock
  std::size_t events = 0, dropped = 0, characters = 0;
  ClockOffset clock;
};

/// The earliest ones.
void keep(Trace& trace, std::size_t count) {
  if (trace.events.size() <= count) return;
  std::stable_sort(trace.events.begin(), trace.events.end(),
                   [](const TraceEvent& a, const TraceEvent& b) { return a.begin < b.begin; });
  trace.dropped += trace.events.size() - count;
  trace.events.resize(count);
}

/// A thread's track: threads of one name follow each other, as those that make batches do.
std::size_t track_of(const Trace& trace, std::size_t thread) {
  const auto found = thread < trace.threads.size() && !trace.threads[thread].empty()
                         ? std::find(trace.threads.begin(), trace.threads.end(), trace.threads[thread])
                         : trace.threads.begin() + static_cast<std::ptrdiff_t>(thread);
  return static_cast<std::size_t>(found - trace.threads.begin());
}

std::string to_text(const Trace& trace, int rank, std::int64_t add) {
  std::string text;
  const auto put = [out = std::back_inserter(text)]<class... A>(fmt::format_string<A...> format,
                                                                A&&... args) {
    fmt::format_to(out, format, std::forward<A>(args)...);
  };
  put(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":"rank {}"}}}})", rank, rank);
  put(",\n{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{}}}}}", rank,
      rank);
  for (std::size_t t = 0; t < trace.threads.size(); ++t) {
    if (trace.threads[t].empty() || track_of(trace, t) != t) continue;
    put(",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}}", rank,
        t, nlohmann::json(trace.threads[t]).dump());
  }
  for (const TraceEvent& event : trace.events) {
    put(",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"name\":{}", rank,
        track_of(trace, event.thread), static_cast<double>(event.begin + add) / 1e3,
        static_cast<double>(event.end - event.begin) / 1e3, nlohmann::json(event.name).dump());
    if (event.bytes > 0) put(",\"args\":{{\"bytes\":{}}}", event.bytes);
    put("}}");
  }
  return text;
}

std::string metadata(const std::vector<RankSummary>& ranks, std::size_t dropped) {
  nlohmann::ordered_json offsets = nlohmann::json::array(), errors = nlohmann::json::array();
  for (const RankSummary& rank : ranks) {
    offsets.push_back(static_cast<double>(rank.clock.add) / 1e3);
    errors.push_back(static_cast<double>(rank.clock.error) / 1e3);
  }
  return nlohmann::ordered_json(
             {{"clock",
               "rank 0's; an offset is what was added to a rank's own, half the fastest round trip "
               "its greatest error"},
              {"clock_offset_us", offsets},
              {"clock_error_us", errors},
              {"dropped", dropped}})
      .dump();
}

}  // namespace

TraceWritten write_trace(Comm& comm, const std::string& path, Trace trace, ClockOffset clock,
                         std::size_t max_events) {
  keep(trace, max_events / static_cast<std::size_t>(comm.size()));
  RankSummary mine{.events = trace.events.size(), .dropped = trace.dropped, .clock = clock};
  for (const TraceEvent& event : trace.events) mine.first = std::min(mine.first, event.begin + clock.add);
  std::int64_t first = mine.first;
  for (const RankSummary& rank : comm.allgather(mine)) first = std::min(first, rank.first);
  std::string text = to_text(trace, comm.rank(), clock.add - first);
  mine.characters = text.size();
  const std::vector<RankSummary> ranks = comm.allgather(mine);
  TraceWritten written;
  std::size_t longest = 0;
  for (const RankSummary& rank : ranks) {
    written.events += rank.events, written.dropped += rank.dropped;
    longest = std::max(longest, rank.characters);
  }
  text.resize(longest);
  const std::vector<std::byte> all = comm.gather(std::as_bytes(std::span(text)));
  if (comm.rank() > 0) return written;
  std::string file = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (r > 0) file += ",\n";
    file.append(reinterpret_cast<const char*>(all.data()) + r * longest, ranks[r].characters);
  }
  atomic_write_text(path, file + "\n],\"otherData\":" + metadata(ranks, written.dropped) + "}\n");
  return written;
}

}  // namespace ssn
