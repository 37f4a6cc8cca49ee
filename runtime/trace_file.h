#pragma once
#include "runtime/comm.h"
#include "runtime/trace.h"

namespace ssn {

/// Of all ranks together: what ui.perfetto.dev and chrome://tracing load without effort.
inline constexpr std::size_t kTraceFileEvents = std::size_t{1} << 19;

struct TraceWritten {
  std::size_t events = 0, dropped = 0;  // of all ranks
};

/// Collective: rank 0 writes what all ranks recorded into `path` (JSON; a temporary file, then renamed). A
/// rank is a process, a thread a track of it; times are microseconds of rank 0's clock since the first event,
/// by `clock` (Comm::clock_offset, measured while or near when this rank recorded). The bytes of a sum are
/// the argument of its event. Of each rank the first `max_events` / ranks are kept. The metadata has each
/// rank's offset and its greatest possible error, and the number of events left out.
TraceWritten write_trace(Comm& comm, const std::string& path, Trace trace, ClockOffset clock,
                         std::size_t max_events = kTraceFileEvents);

}  // namespace ssn
