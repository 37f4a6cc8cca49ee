#include "runtime/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>
#include <thread>

#include "runtime/error.h"
#include "runtime/random.h"
#include "runtime/seal.h"

/// The HDF5 library itself loses a little memory over damaged files; LeakSanitizer asks here what to leave
/// out.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libhdf5\n";
}
extern "C" const char* __lsan_default_options() {
  return "print_suppressions=0";
}

namespace ssn {
namespace {
namespace fs = std::filesystem;

/// A directory of its own for each test, removed with all that is in it.
class Checkpoint : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ssn-checkpoint-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::string file(const std::string& name) const { return (directory_ / name).string(); }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  fs::path directory_;
};

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write_bytes(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// Every byte drawn at random: all bit patterns, NaNs among them.
Tensor random_bits(const Shape& shape, DType dtype, std::uint64_t seed) {
  const Tensor t = Tensor::empty(shape, dtype);
  const Random random(seed, "checkpoint test");
  auto* bytes = static_cast<unsigned char*>(t.raw());
  for (std::size_t i = 0; i < t.bytes(); ++i) bytes[i] = static_cast<unsigned char>(random.bits(i));
  return t;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

/// The message of the Error that f throws; empty if it throws none.
std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "not an Error: " << e.what();
  }
  return "";
}

Archive small_archive() {
  Archive a;
  a.tensors["theta"] = random_bits(Shape{7, 31}, DType::f32, 1);
  a.tensors["optimizer/momentum"] = random_bits(Shape{131}, DType::f64, 2);
  a.tensors["statistics/mean"] = random_bits(Shape{5}, DType::f32, 3);
  a.attributes["trainer/step"] = std::int64_t{1234};
  a.attributes["network"] = "wrn-16-1";
  return a;
}

TEST_F(Checkpoint, RoundTripOfEveryTypeAndShape) {
  const std::vector<Shape> shapes = {Shape{},
                                     Shape{0},
                                     Shape{3, 0, 5},
                                     Shape{1},
                                     Shape{31},
                                     Shape{3, 11},
                                     Shape{127, 1, 1},
                                     Shape{129},
                                     Shape{2, 3, 5, 7},
                                     Shape{2, 3, 4, 5, 6},
                                     Shape{2, 1, 3, 5, 4, 7},
                                     Shape{1000003},
                                     Shape{3, 400009}};
  Archive a;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i32, DType::i64, DType::u8}) {
    for (std::size_t i = 0; i < shapes.size(); ++i)
      a.tensors[fmt::format("{}/{}", name_of(dtype), i)] = random_bits(shapes[i], dtype, i);
  }
  for (const Layout layout : {Layout::checked, Layout::compressed, Layout::plain}) {
    save_checkpoint(file("a.h5"), a, layout);
    const Archive b = load_checkpoint(file("a.h5"));
    EXPECT_EQ(files(), std::vector<std::string>{"a.h5"});
    EXPECT_FALSE(b.program_version.empty());
    EXPECT_EQ(b.format_version, 2);
    EXPECT_TRUE(b.attributes.empty());
    ASSERT_EQ(b.tensors.size(), a.tensors.size());
    for (const auto& [name, tensor] : a.tensors) EXPECT_TRUE(same_bits(tensor, b.tensor(name))) << name;
  }
}

TEST_F(Checkpoint, CompressedWhereThatMakesItSmaller) {
  Archive a;
  a.tensors["random"] = random_bits(Shape{3, 400009}, DType::f32, 1);  // cannot be
  a.tensors["ones"] = Tensor::full(Shape{1000003}, 1, DType::f32);
  save_checkpoint(file("a.h5"), a, Layout::compressed);
  const auto size = fs::file_size(file("a.h5"));
  EXPECT_GT(size, a.tensor("random").bytes());
  EXPECT_LT(size, a.tensor("random").bytes() + 100'000);
  const Archive b = load_checkpoint(file("a.h5"));
  for (const auto& [name, tensor] : a.tensors) EXPECT_TRUE(same_bits(tensor, b.tensor(name))) << name;
}

TEST_F(Checkpoint, RoundTripOfAttributes) {
  Archive a;
  a.tensors["group/theta"] = Tensor::zeros(Shape{3}, DType::f32);
  a.attributes["group/theta/unit"] = "metre";  // on a tensor
  a.attributes["group/name"] = "größer, 形";
  a.attributes["deep/er/than/most"] = std::numeric_limits<std::int64_t>::min();
  a.attributes["empty text"] = "";
  a.attributes["long text"] = std::string(200003, 'x');
  a.attributes["rate"] = 0.1;
  a.attributes["infinite"] = -std::numeric_limits<double>::infinity();
  a.attributes["offsets"] = std::vector<std::int64_t>{3, -1, 1ll << 62};
  a.attributes["losses"] = std::vector<double>{0.5, 1e-300};
  a.attributes["one"] = std::vector<double>{2};
  a.attributes["none"] = std::vector<std::int64_t>{};
  a.attributes["no numbers"] = std::vector<double>{};
  a.attributes["many"] = std::vector<std::int64_t>(30011, 7);
  save_checkpoint(file("a.h5"), a);
  const Archive b = load_checkpoint(file("a.h5"));
  EXPECT_EQ(b.attributes, a.attributes);
  EXPECT_EQ(b.tensors.size(), 1u);
  EXPECT_EQ(b.attribute<std::string>("group/theta/unit"), "metre");
  EXPECT_NE(error_of([&] { b.attribute<double>("group/theta/unit"); }).find("another type"),
            std::string::npos);
  EXPECT_NE(error_of([&] { b.attribute<double>("absent"); }).find("no attribute absent"), std::string::npos);
  EXPECT_NE(error_of([&] { b.tensor("absent"); }).find("no tensor absent"), std::string::npos);
}

TEST_F(Checkpoint, SameContentGivesTheSameBytes) {
  save_checkpoint(file("a.h5"), small_archive());
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // times, if stored, are in seconds
  save_checkpoint(file("b.h5"), small_archive());
  EXPECT_EQ(bytes_of(file("a.h5")), bytes_of(file("b.h5")));
}

TEST_F(Checkpoint, NamesThatCannotBeStored) {
  Archive a = small_archive();
  a.tensors["never made"] = Tensor();
  EXPECT_NE(error_of([&] { save_checkpoint(file("a.h5"), a); }).find("never made"), std::string::npos);
  Archive b = small_archive();
  b.tensors["theta/below a tensor"] = Tensor::zeros(Shape{3}, DType::f32);
  EXPECT_NE(error_of([&] { save_checkpoint(file("a.h5"), b); }), "");
  Archive c = small_archive();
  c.attributes["zero"] = std::string("a\0b", 3);
  EXPECT_NE(error_of([&] { save_checkpoint(file("a.h5"), c); }).find("zero bytes"), std::string::npos);
  EXPECT_TRUE(files().empty());
}

TEST_F(Checkpoint, TruncatedAtAnyLengthIsAnError) {
  save_checkpoint(file("a.h5"), small_archive());
  const std::string whole = bytes_of(file("a.h5"));
  for (std::size_t length = 0; length < whole.size(); length += length < 1024 ? 1 : 7) {
    write_bytes(file("cut.h5"), std::string_view(whole).substr(0, length));
    const std::string message = error_of([&] { load_checkpoint(file("cut.h5")); });
    ASSERT_NE(message.find(file("cut.h5")), std::string::npos)
        << length << " of " << whole.size() << ": " << message;
  }
}

TEST_F(Checkpoint, AFlippedBitIsAnError) {
  save_checkpoint(file("a.h5"), small_archive());
  const std::string whole = bytes_of(file("a.h5"));
  const Random random(1, "flips");
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << random.below(8, at));
    write_bytes(file("bad.h5"), damaged);
    const std::string message = error_of([&] { load_checkpoint(file("bad.h5")); });
    ASSERT_NE(message.find(file("bad.h5")), std::string::npos) << "byte " << at << ": " << message;
  }
  write_bytes(file("bad.h5"), whole + "more");
  EXPECT_NE(error_of([&] { load_checkpoint(file("bad.h5")); }).find("damaged"), std::string::npos);
}

TEST_F(Checkpoint, DamageBehindTheSealIsAnErrorToo) {
  const Archive a = small_archive();
  save_checkpoint(file("a.h5"), a);
  const std::string whole = bytes_of(file("a.h5"));
  const Random random(1, "flips");
  for (std::size_t at = kSealBytes; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << random.below(8, at));
    write_bytes(file("bad.h5"), damaged);
    seal_file(file("bad.h5"));
    Archive b;
    if (error_of([&] { b = load_checkpoint(file("bad.h5")); }) != "") continue;
    for (const auto& [name, tensor] : a.tensors)  // not seen: in unused bytes
      EXPECT_TRUE(same_bits(b.tensor(name), tensor)) << "byte " << at;
    EXPECT_EQ(b.attributes, a.attributes) << "byte " << at;
  }
}

TEST_F(Checkpoint, TheSealIsTextThatAnyProgramChecks) {
  save_checkpoint(file("a.h5"), small_archive());
  const std::string bytes = bytes_of(file("a.h5"));
  std::uint32_t crc = ~0u;  // bit by bit
  for (const char c : bytes.substr(512)) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0u);
  }
  EXPECT_TRUE(bytes.starts_with(fmt::format(
      "shapeshifter-checkpoint\nformat-version 2\nlength {}\ncrc32 {:08x}\n\n", bytes.size(), ~crc)));
  EXPECT_EQ(bytes.substr(511, 5), "\n\x89HDF");
}

TEST_F(Checkpoint, MissingOrForeignFiles) {
  const auto load = [&](const std::string& name) { return error_of([&] { load_checkpoint(file(name)); }); };
  EXPECT_NE(load("none.h5").find("No such file"), std::string::npos);
  write_bytes(file("empty.h5"), "");
  EXPECT_NE(load("empty.h5").find("not an HDF5 file"), std::string::npos);
  write_bytes(file("text.h5"), std::string(5000, 'x'));
  EXPECT_NE(load("text.h5").find("not an HDF5 file"), std::string::npos);
  fs::create_directory(file("directory.h5"));
  EXPECT_NE(load("directory.h5").find("not a file"), std::string::npos);
  ASSERT_EQ(mkfifo(file("pipe.h5").c_str(), 0600), 0);
  EXPECT_NE(load("pipe.h5").find("not a file"), std::string::npos);
  {
    Hdf5File f = Hdf5File::create(file("other.h5"));
    f.write("x", Tensor::zeros(Shape{3}, DType::f32));
    f.close();
  }
  EXPECT_NE(load("other.h5").find("not a checkpoint"), std::string::npos);
  {
    Hdf5File f = Hdf5File::create(file("later.h5"));
    f.set_attribute("", "format", "shapeshifter-checkpoint");
    f.set_attribute("", "format_version", 3);
    f.close();
  }
  EXPECT_NE(load("later.h5").find("format version is 3"), std::string::npos);
  save_checkpoint(file("later.h5"), small_archive());
  std::string bytes = bytes_of(file("later.h5"));
  bytes[bytes.find("version 2") + 8] = '3';
  write_bytes(file("later.h5"), bytes);
  EXPECT_NE(load("later.h5").find("format version is 3, this program reads up to 2"), std::string::npos);
  bytes[0] = ' ';  // no seal, but all that is behind it
  write_bytes(file("later.h5"), bytes);
  EXPECT_NE(load("later.h5").find("damaged"), std::string::npos);
}

/// Runs f in a process of its own and returns its exit code, −1 if a signal ended it.
int in_child(const std::function<int()>& f) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    int code = 99;
    error_of([&] { code = f(); });
    std::exit(code);  // with the libraries' own endings
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// 0 if `save` fails with an Error when files may not grow beyond `limit` bytes: what a full disk does.
int save_with_limit(std::size_t limit, const std::function<void()>& save) {
  return in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit most{limit, limit};
    if (setrlimit(RLIMIT_FSIZE, &most) != 0) return 3;
    return error_of(save).find("File too large") != std::string::npos ? 0 : 1;
  });
}

TEST_F(Checkpoint, AFullDiskLeavesTheOldFile) {
  save_checkpoint(file("a.h5"), small_archive());
  atomic_write_text(file("a.txt"), "old");
  const std::string before = bytes_of(file("a.h5"));
  Archive large = small_archive();
  for (int i = 0; i < 3; ++i)
    large.tensors[fmt::format("large/{}", i)] = random_bits(Shape{3, 400009}, DType::f32, 5);
  testing::internal::CaptureStderr();
  for (const std::size_t limit : {0, 100, 1000, 4096, 100000, 3000000, 9000000, 14000000}) {
    EXPECT_EQ(save_with_limit(limit, [&] { save_checkpoint(file("a.h5"), large); }), 0) << limit;
    EXPECT_EQ(save_with_limit(limit, [&] { atomic_write_text(file("a.txt"), std::string(14400000, 'x')); }),
              0)
        << limit;
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(bytes_of(file("a.h5")), before);
  EXPECT_EQ(bytes_of(file("a.txt")), "old");
  EXPECT_EQ(files(), (std::vector<std::string>{"a.h5", "a.txt"}));
}

TEST_F(Checkpoint, GoesOnAfterAFullDisk) {
  EXPECT_EQ(in_child([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              rlimit limit{};
              getrlimit(RLIMIT_FSIZE, &limit);
              const rlim_t usual = limit.rlim_cur;
              limit.rlim_cur = 500000;
              setrlimit(RLIMIT_FSIZE, &limit);
              Archive a;
              a.tensors["x"] = random_bits(Shape{1000003}, DType::f32, 1);
              for (int i = 0; i < 3; ++i)
                if (error_of([&] { save_checkpoint(file("a.h5"), a); }) == "") return 1;
              limit.rlim_cur = usual;
              setrlimit(RLIMIT_FSIZE, &limit);
              save_checkpoint(file("a.h5"), a);
              return same_bits(load_checkpoint(file("a.h5")).tensor("x"), a.tensor("x")) ? 0 : 2;
            }),
            0);
  EXPECT_EQ(files(), std::vector<std::string>{"a.h5"});
}

TEST_F(Checkpoint, NoPermission) {
  save_checkpoint(file("a.h5"), small_archive());
  const std::string before = bytes_of(file("a.h5"));
  fs::permissions(directory_, fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_exec |
                                  fs::perms::others_read);
  const int code = in_child([&] {
    if (geteuid() == 0 && seteuid(65534) != 0) return 3;
    const std::string message = error_of([&] { save_checkpoint(file("a.h5"), small_archive()); });
    const std::string text = error_of([&] { atomic_write_text(file("a.txt"), "x"); });
    if (seteuid(getuid()) != 0) return 4;
    const bool both = message.find("Permission denied") != std::string::npos &&
                      text.find("Permission denied") != std::string::npos;
    return both ? 0 : 1;
  });
  fs::permissions(directory_, fs::perms::owner_all);
  EXPECT_EQ(code, 0);
  EXPECT_EQ(bytes_of(file("a.h5")), before);
  EXPECT_EQ(files(), std::vector<std::string>{"a.h5"});
  EXPECT_NE(error_of([&] { save_checkpoint(file("none/a.h5"), small_archive()); }).find("No such file"),
            std::string::npos);
  fs::create_directory(file("taken"));
  EXPECT_NE(error_of([&] { save_checkpoint(file("taken"), small_archive()); }).find("is a directory"),
            std::string::npos);
}

TEST_F(Checkpoint, TextReplacesText) {
  atomic_write_text(file("a.txt"), "first, and longer");
  atomic_write_text(file("a.txt"), "second");
  EXPECT_EQ(bytes_of(file("a.txt")), "second");
  atomic_write_text(file("a.txt"), "");
  EXPECT_EQ(bytes_of(file("a.txt")), "");
  EXPECT_EQ(files(), std::vector<std::string>{"a.txt"});
}

TEST_F(Checkpoint, LinksAndDevicesStay) {
  atomic_write_text(file("a.txt"), "old");
  fs::create_symlink(file("a.txt"), file("link"));
  atomic_write_text(file("link"), "new");
  EXPECT_TRUE(fs::is_symlink(file("link")));
  EXPECT_EQ(bytes_of(file("a.txt")), "new");
  EXPECT_EQ(files(), (std::vector<std::string>{"a.txt", "link"}));
  fs::create_symlink(file("none"), file("lost"));
  EXPECT_NE(error_of([&] { atomic_write_text(file("lost"), "x"); }).find("leads nowhere"), std::string::npos);
  EXPECT_TRUE(fs::is_symlink(file("lost")));
  ASSERT_EQ(mkfifo(file("pipe").c_str(), 0600), 0);
  EXPECT_NE(error_of([&] { atomic_write_text(file("pipe"), "x"); }).find("it is not a file"),
            std::string::npos);
  EXPECT_TRUE(fs::is_fifo(file("pipe")));
}

TEST_F(Checkpoint, ThreadsMayUseFilesOfTheirOwn) {
  std::vector<std::jthread> threads;
  std::array<bool, 4> same{};
  for (std::size_t i = 0; i < same.size(); ++i) {
    threads.emplace_back([&, i] {
      Archive a;
      a.tensors["x"] = random_bits(Shape{10007}, DType::f64, i);
      for (int turn = 0; turn < 5; ++turn) save_checkpoint(file(fmt::format("{}.h5", i)), a);
      same[i] = same_bits(load_checkpoint(file(fmt::format("{}.h5", i))).tensor("x"), a.tensor("x"));
    });
  }
  threads.clear();
  for (std::size_t i = 0; i < same.size(); ++i) EXPECT_TRUE(same[i]) << i;
}

TEST_F(Checkpoint, Hdf5FileNamesWhatIsWrong) {
  Hdf5File f = Hdf5File::create(file("a.h5"));
  f.write("g/x", Tensor::zeros(Shape{3}, DType::f32));
  EXPECT_TRUE(f.exists("g/x"));
  EXPECT_FALSE(f.exists("g/y"));
  EXPECT_FALSE(f.exists("absent/x"));
  EXPECT_TRUE(f.is_group("g"));
  EXPECT_FALSE(f.is_group("g/x"));
  EXPECT_EQ(f.children(""), std::vector<std::string>{"g"});
  EXPECT_EQ(f.children("g"), std::vector<std::string>{"x"});
  EXPECT_FALSE(f.has_attribute("g", "a"));
  const auto says = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says(error_of([&] { f.read("g/y"); }), "a.h5: cannot read /g/y: there is none");
  says(error_of([&] { f.read("g"); }), "not a dataset");
  says(error_of([&] { f.children("g/x"); }), "not a group");
  says(error_of([&] { f.write("g/x", Tensor::zeros(Shape{3}, DType::f32)); }), "already exists");
  says(error_of([&] { f.attribute("g", "a"); }), "cannot read attribute a of /g");
  f.set_attribute("g", "a", 3);
  EXPECT_EQ(f.attribute<std::int64_t>("g", "a"), 3);
  says(error_of([&] { f.set_attribute("g", "a", 4); }), "already exists");
  says(error_of([&] { f.attribute<double>("g", "a"); }), "another type");
}

TEST_F(Checkpoint, Hdf5FileReadsPartsOfBytes) {
  std::vector<std::uint8_t> bytes(3'000'000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 37 % 251);
  {
    Hdf5File f = Hdf5File::create(file("parts.h5"));
    const Tensor tensor = Tensor::of<std::uint8_t>({std::ssize(bytes)}, bytes);
    f.write("plain", tensor, Layout::plain);
    f.write("checked", tensor);
    f.write("empty", Tensor::zeros(Shape{0}, DType::u8), Layout::plain);
    f.write("floats", Tensor::zeros(Shape{4}, DType::f32));
    f.close();
  }
  const Hdf5File f = Hdf5File::open(file("parts.h5"));
  for (const char* name : {"plain", "checked"}) {
    EXPECT_EQ(f.length(name), 3'000'000);
    for (const auto& [first, count] : {std::pair(0, 10), {1'048'570, 20}, {2'999'999, 1}, {3'000'000, 0}}) {
      std::vector<std::uint8_t> part(count);
      f.read_part(name, first, part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), bytes.begin() + first)) << name << " " << first;
    }
  }
  EXPECT_EQ(f.length("empty"), 0);
  std::vector<std::uint8_t> two(2);
  const auto says = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says(error_of([&] { f.read_part("plain", 2'999'999, two); }),
       "there are no 2 bytes from 2999999 on, it has 3000000");
  says(error_of([&] { f.read_part("plain", -1, two); }), "from -1 on");
  says(error_of([&] { f.read_part("floats", 0, two); }), "not a list of bytes");
  says(error_of([&] { f.length("absent"); }), "there is none");
}

}  // namespace
}  // namespace ssn
