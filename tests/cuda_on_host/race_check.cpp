// A race check that does not depend on the schedule. Kernels are compiled with -fsanitize=thread, which calls
// a function before every memory access; the functions are the project's own (race_hooks.cpp), libtsan is not
// linked.
//
// Accesses of one block are ordered by __syncthreads, within a warp by __syncwarp too; shuffles and votes
// order no memory. Blocks of a launch are not ordered, launches are. Also reported: reads of shared memory
// that the block never wrote, accesses to another thread's local memory, and accesses to memory that is not
// the device's.
#include "tests/cuda_on_host/race_check.h"

#include <link.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "tests/cuda_on_host/block.h"
#include "tests/cuda_on_host/device_memory.h"
#include "tests/cuda_on_host/race_access.h"
#include "tests/cuda_on_host/shared_memory.h"

namespace cuda_on_host {
namespace {

struct Span {
  const char *begin = nullptr, *end = nullptr;
  bool contains(const void* p) const { return p >= begin && p < end; }
};

/// One access: by which thread of which block, when (barriers of the block, barriers of the warp), to which
/// bytes of the cell.
struct Record {
  std::uint32_t block = 0, code = 0;
  std::uint32_t thread = 0, block_time = 0, warp_time = 0;
  std::uint8_t bytes = 0;  // a bit for each
  bool atomic = false, write = false;
};

/// Bytes of a cell: those of the smallest number that kernels compute with, bf16. Of single bytes within one,
/// only the last write is remembered.
constexpr std::uintptr_t kCell = 2;

/// What is remembered of a cell: the last write and two reads of this block, the launch's first reader of
/// whatever block, which bytes are written.
struct Cell {
  Record write, reads[2];
  std::uint32_t reading_block = 0, reading_code = 0;
  std::uint32_t written_block = 0;
  std::uint8_t reading = 0, written = 0;  // bytes
};

/// The cells of memory by address, in pages made at their first access.
class Shadow {
 public:
  Cell& cell(std::uintptr_t address) {
    const std::uintptr_t number = address / kPage;
    Recent& recent = recent_[number % recent_.size()];
    if (recent.number != number) {
      auto& page = pages_[number];
      if (!page) page = std::make_unique<Page>();
      recent = {number, page.get()};
    }
    return recent.page->cells[address % kPage / kCell];
  }

 private:
  static constexpr std::uintptr_t kPage = 4096;
  struct Page {
    Cell cells[kPage / kCell];
  };
  struct Recent {
    std::uintptr_t number = ~std::uintptr_t{0};
    Page* page = nullptr;
  };
  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  std::array<Recent, 256> recent_;
};

/// The program's own memory, where it is loaded.
struct Program {
  const char* base = nullptr;  // what addr2line counts from
  Span image;
  Program() { dl_iterate_phdr(find, this); }
  static int find(dl_phdr_info* object, std::size_t, void* self) {  // the first object is the program
    auto& p = *static_cast<Program*>(self);
    p.base = reinterpret_cast<const char*>(object->dlpi_addr);
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const auto& part = object->dlpi_phdr[i];
      if (part.p_type != PT_LOAD) continue;
      const char *begin = p.base + part.p_vaddr, *end = begin + part.p_memsz;
      if (!p.image.begin || begin < p.image.begin) p.image.begin = begin;
      p.image.end = std::max(p.image.end, end);
    }
    return 1;
  }
};

/// The stack of the calling operating-system thread.
Span own_stack() {
  thread_local const Span stack = [] {
    pthread_attr_t attributes;
    void* lowest = nullptr;
    std::size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attributes)) return Span{};
    pthread_attr_getstack(&attributes, &lowest, &bytes);
    pthread_attr_destroy(&attributes);
    return Span{static_cast<char*>(lowest), static_cast<char*>(lowest) + bytes};
  }();
  return stack;
}

class Checker final : public RaceCheck {
 public:
  void launch_starts() override {
    first_block_ = block_ + 1;
    launcher_stack_ = own_stack();
  }
  void block_starts() override;
  void block_barrier() override { ++block_time_; }
  void warp_barrier(int first_thread, unsigned lanes) override;
  void atomic(const void* at, std::size_t bytes, void* code) override {
    access({at, bytes, code, true, true});
  }
  void access(const Access&);

 private:
  void check_place(const Access&, bool shared) const;
  void check_cell(Cell&, const Record& mine, std::uintptr_t address, bool shared);
  void check_pair(const Record& mine, const Record& other, std::uintptr_t address, bool shared) const;
  bool happened_before(const Record& other, const Record& mine) const;
  void remember_write(Cell&, Record mine, bool shared);
  void remember_read(Cell&, Record mine, bool shared);
  std::uint32_t offset_of(const void* code) const {
    return static_cast<std::uint32_t>(static_cast<const char*>(code) - program_.base);
  }
  std::string line_of(std::uint32_t code) const;
  std::string text_of(const Record&) const;

  Program program_;
  Span launcher_stack_;
  Shadow shadow_;
  std::uint32_t block_ = 0, first_block_ = 1;  // numbers of blocks: the running one, the first of the launch
  std::uint32_t block_time_ = 0;
  std::array<std::uint32_t, kMaxThreads> warp_time_{};
  std::array<std::array<std::uint32_t, 32>, kMaxThreads>
      seen_{};  // of each lane of its warp, what a thread knows
};

Checker& checker() {
  static Checker& c = *new Checker;
  return c;
}
[[maybe_unused]] const bool installed = [] {
  race_check = &checker();
  return true;
}();

void Checker::block_starts() {
  ++block_;
  block_time_ = 0;
  const int threads = (block().size + 31) / 32 * 32;
  std::fill_n(warp_time_.begin(), threads, 1u);
  std::fill_n(seen_.begin(), threads, std::array<std::uint32_t, 32>{});
}

void Checker::warp_barrier(int first, unsigned lanes) {
  std::array<std::uint32_t, 32> joint{};
  for (unsigned rest = lanes; rest; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    for (int i = 0; i < 32; ++i) joint[i] = std::max(joint[i], seen_[first + lane][i]);
    joint[lane] = std::max(joint[lane], warp_time_[first + lane]);
  }
  for (unsigned rest = lanes; rest; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    seen_[first + lane] = joint;
    ++warp_time_[first + lane];
  }
}

bool Checker::happened_before(const Record& other, const Record& mine) const {
  if (other.block != block_) return false;
  if (other.thread == mine.thread || other.block_time < mine.block_time) return true;
  return other.thread / 32 == mine.thread / 32 && seen_[mine.thread][other.thread % 32] >= other.warp_time;
}

void Checker::check_pair(const Record& mine, const Record& other, std::uintptr_t address, bool shared) const {
  const std::uint32_t oldest =
      shared ? block_ : first_block_;  // older records are of earlier blocks or launches
  if (other.block < oldest || other.block == 0 || !(other.bytes & mine.bytes) ||
      (other.atomic && mine.atomic))
    return;
  if (happened_before(other, mine)) return;
  fail("race on {} memory at {:#x}: {} and {} are not ordered", shared ? "shared" : "global", address,
       text_of(mine), text_of(other));
}

void Checker::check_cell(Cell& cell, const Record& mine, std::uintptr_t address, bool shared) {
  check_pair(mine, cell.write, address, shared);
  if (mine.write) {
    for (const Record& read : cell.reads) check_pair(mine, read, address, shared);
    if (!shared && !mine.atomic && cell.reading_block >= first_block_ && cell.reading_block != block_) {
      check_pair(mine, {.block = cell.reading_block, .code = cell.reading_code, .bytes = cell.reading},
                 address, shared);
    }
    remember_write(cell, mine, shared);
  } else {
    if (shared && (cell.written_block != block_ || (cell.written & mine.bytes) != mine.bytes)) {
      fail("read of shared memory that this block never wrote, at {}", line_of(mine.code));
    }
    remember_read(cell, mine, shared);
  }
}

bool same_moment(const Record& a, const Record& b) {
  return a.block == b.block && a.thread == b.thread && a.block_time == b.block_time &&
         a.warp_time == b.warp_time && a.atomic == b.atomic;
}

void Checker::remember_write(Cell& cell, Record mine, bool shared) {
  const std::uint8_t bytes = mine.bytes;
  if (same_moment(cell.write, mine)) mine.bytes |= cell.write.bytes;
  cell.write = mine;
  if (!shared) return;
  if (cell.written_block != block_) cell.written = 0;
  cell.written_block = block_;
  cell.written |= bytes;
}

void Checker::remember_read(Cell& cell, Record mine, bool shared) {
  Record& first = cell.reads[0];
  const bool replace =
      first.block != block_ || first.block_time != mine.block_time || first.thread == mine.thread;
  Record& read = replace ? first : cell.reads[1];
  if (same_moment(read, mine)) mine.bytes |= read.bytes;
  read = mine;
  if (shared) return;
  if (cell.reading_block < first_block_) {
    cell.reading_block = block_;
    cell.reading_code = mine.code;
    cell.reading = 0;
  }
  if (cell.reading_block == block_) cell.reading |= mine.bytes;
}

/// Global memory must be a live device allocation, or a variable of the program (constants).
void Checker::check_place(const Access& a, bool shared) const {
  if (block().fibers.contains(a.at))
    fail("access to another thread's local memory at {}", line_of(offset_of(a.code)));
  if (shared || program_.image.contains(a.at) || place_of(a.at, a.bytes) == Place::device) return;
  fail("access to {} bytes at {}, not within a live device allocation, at {}", a.bytes, a.at,
       line_of(offset_of(a.code)));
}

void Checker::access(const Access& a) {
  const Block& b = block();
  const auto* p = static_cast<const char*>(a.at);
  const auto is_builtin = [p](const auto& variable) {
    const char* begin = reinterpret_cast<const char*>(&variable);
    return p >= begin && p < begin + sizeof variable;
  };
  if (is_builtin(threadIdx) || is_builtin(blockIdx) || is_builtin(blockDim) || is_builtin(gridDim)) return;
  const Fiber& fiber = *b.threads[b.current].fiber;
  if ((p >= fiber.stack && p < fiber.stack + fiber.bytes) || launcher_stack_.contains(p)) return;
  const bool shared = in_shared_memory(p);
  check_place(a, shared);
  Record mine{.block = block_,
              .code = offset_of(a.code),
              .thread = static_cast<std::uint32_t>(b.current),
              .block_time = block_time_,
              .warp_time = warp_time_[b.current],
              .atomic = a.atomic,
              .write = a.write};
  const auto begin = reinterpret_cast<std::uintptr_t>(p), end = begin + a.bytes;
  for (std::uintptr_t cell = begin / kCell * kCell; cell < end; cell += kCell) {
    const unsigned from = cell < begin ? static_cast<unsigned>(begin - cell) : 0;
    const auto to = static_cast<unsigned>(std::min(end - cell, kCell));
    mine.bytes = static_cast<std::uint8_t>((1u << to) - (1u << from));
    check_cell(shadow_.cell(cell), mine, cell, shared);
  }
}

/// Slow: for reports only.
std::string Checker::line_of(std::uint32_t code) const {
  const std::string command = fmt::format("addr2line -s -e /proc/{}/exe {:#x}", getpid(), code - 1);
  char text[400] = "";
  if (FILE* lines = popen(command.c_str(), "r")) {
    if (!std::fgets(text, sizeof text, lines)) text[0] = 0;
    pclose(lines);
  }
  text[std::strcspn(text, " \n")] = 0;
  return text;
}

std::string Checker::text_of(const Record& r) const {
  const std::string what = r.atomic ? "an atomic" : r.write ? "a write" : "a read";
  const std::string who =
      r.block == block_ ? "thread " + thread_text(static_cast<int>(r.thread)) : "a thread of another block";
  return fmt::format("{} by {} at {}", what, who, line_of(r.code));
}

}  // namespace

void check_access(const Access& a) {
  if (!block().running) return;
  try {
    checker().access(a);
    return;
  } catch (const BlockFailure& e) {
    record_failure(e);
  }
  leave_failed_block();  // not thrown on: compilers take it that the hooks throw nothing
}

}  // namespace cuda_on_host
