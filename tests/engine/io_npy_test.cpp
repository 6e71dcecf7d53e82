#include "engine/io/npy.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <numeric>

#include "engine/io/layout.h"
#include "schema/checked_bytes.h"
#include "schema/safetensors.h"
#include "schema/error.h"

using namespace gradwire;
using namespace gradwire::engine;
namespace fs = std::filesystem;

namespace {

std::span<const std::byte> bytes_of(const std::string& s) { return std::as_bytes(std::span(s)); }

/// A whole file of version `major`, with this text as its dictionary.
std::string file(const std::string& dictionary, int major = 1) {
  const std::string text = dictionary + "\n";
  std::string head = "\x93NUMPY";
  head += static_cast<char>(major);
  head += '\0';
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) head += static_cast<char>(text.size() >> (8 * i) & 0xFF);
  return head + text;
}

io::NpyHead parse(const std::string& f) {
  const auto b = bytes_of(f);
  const size_t n = io::npy_head_bytes(b.first(std::min(b.size(), io::kNpyPrefix)));
  if (n > b.size()) throw Error(Code::bad_tensor, "cut");
  return io::parse_npy_head(b.first(n));
}

bool refused(const std::string& f) {
  try {
    parse(f);
  } catch (const Error& e) {
    return e.code() == Code::bad_tensor;
  }
  return false;
}

const std::string kGood = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";

/// Runs Python with numpy; nothing if there is none.
std::optional<std::string> python() {
  for (const char* p : {"/usr/bin/python3", "python3"}) {
    if (std::system((std::string(p) + " -c 'import numpy' >/dev/null 2>&1").c_str()) == 0) return p;
  }
  return std::nullopt;
}

fs::path scratch(const std::string& name) {
  return fs::temp_directory_path() / ("gradwire_io_" + std::to_string(::getpid()) + "_" + name);
}

std::string slurp(const fs::path& p) {
  std::ifstream in(p, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("An npy head is read in all three versions", "[T29]") {
  const int major = GENERATE(1, 2, 3);
  const io::NpyHead head = parse(file(kGood, major));
  CHECK(head.dtype == DType::float32);
  CHECK(head.shape == Shape{2, 3});
  CHECK(head.data_bytes == 24);
  CHECK_FALSE(head.fortran);
  CHECK_FALSE(head.big_endian);
}

TEST_CASE("An npy head may be written in NumPy's other ways", "[T29]") {
  CHECK(parse(file("{\"shape\": (), \"descr\": \">i8\", \"fortran_order\": True}")).big_endian);
  CHECK(parse(file("{'descr': '|b1', 'fortran_order': True, 'shape': (3,)}")).fortran);
  CHECK(parse(file("{'descr': '<f2', 'fortran_order': False, 'shape': (3L, 4L)}")).shape == Shape{3, 4});
  CHECK(parse(file("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 7), }     ")).data_bytes == 0);
}

TEST_CASE("Hostile npy heads are refused before memory is spent", "[T29]") {
  const std::string hostile =
      GENERATE("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
               "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
               "{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }",
               "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
               "{'descr': '<f4', 'fortran_order': False, 'shape': (3), }",
               "{'descr': '<f4', 'fortran_order': False, 'shape': [3], }",
               "{'descr': '<f4', 'fortran_order': 0, 'shape': (3,), }", "{'descr': '<f4', 'shape': (3,), }",
               "{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (3,), }",
               "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': 1}",
               "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), } + 1",
               "{'descr': '<f4', 'fortran_order': False, 'shape': (2 * 3,), }",
               "{'descr': '<f4', 'fortran_order': False, 'shape': (0x3,), }",
               "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
               "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 1099511627776), }",
               "{'descr': '<f4', 'fortran_order': False, 'shape': "
               "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1), }",
               "{'descr': '|f4', 'fortran_order': False, 'shape': (3,), }",
               "{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (3,), }", "__import__('os').system('true')", "",
               "{", "{'descr': '<f4'", "{'descr': '<f4', 'fortran_order': False, 'shape': (3,");
  CAPTURE(hostile);
  CHECK(refused(file(hostile)));
  CHECK(refused(file(hostile, 3)));
}

TEST_CASE("An npy file with a wrong beginning is refused", "[T29]") {
  std::string f = file(kGood);
  CHECK(refused(""));
  CHECK(refused(f.substr(0, 11)));
  CHECK(refused(f.substr(0, f.size() - 1)));
  for (size_t i = 0; i < 7; ++i) {
    std::string g = f;
    g[i] ^= 1;
    if (i == 6) g[i] = 9;
    CHECK(refused(g));
  }
  std::string huge = "\x93NUMPY\x03";
  huge += std::string("\0\xFF\xFF\xFF\x7F", 5);
  CHECK(refused(huge));
  CHECK(refused(file(kGood + std::string(10001, ' '))));
}

TEST_CASE("Every byte of an npy head may be damaged, and every length cut", "[T29]") {
  const std::string f = file(kGood);
  size_t read = 0;
  for (size_t i = 0; i < f.size(); ++i) {
    CHECK(refused(f.substr(0, i)));
    for (int bit = 0; bit < 8; ++bit) {
      std::string g = f;
      g[i] = static_cast<char>(g[i] ^ 1 << bit);
      try {
        parse(g);
        ++read;
      } catch (const Error& e) {
        if (e.code() != Code::bad_tensor) FAIL(e.what());
      }
    }
  }
  CHECK(read > 0);  // some flips give another valid head: (2, 3) -> (2, 7)
}

TEST_CASE("Column-major and big-endian elements find their place in chunks of any length", "[T29]") {
  const auto chunk = static_cast<size_t>(GENERATE(1, 3, 4, 7, 100));
  std::vector<uint32_t> file_order;
  for (uint32_t i = 0; i < 24; ++i) file_order.push_back(__builtin_bswap32(i));
  std::vector<uint32_t> to(24, 99);
  io::Sink sink(DType::int32, {2, 3, 4}, true, true, std::as_writable_bytes(std::span(to)));
  CHECK_FALSE(sink.plain());
  std::span<const std::byte> bytes = std::as_bytes(std::span(file_order));
  while (!bytes.empty()) {
    const size_t n = std::min(chunk, bytes.size());
    sink.feed(bytes.first(n));
    bytes = bytes.subspan(n);
  }
  CHECK(sink.full());
  for (uint32_t i = 0; i < 2; ++i) {
    for (uint32_t j = 0; j < 3; ++j) {
      for (uint32_t k = 0; k < 4; ++k) CHECK(to[i * 12 + j * 4 + k] == i + 2 * j + 6 * k);
    }
  }
  CHECK_THROWS_AS(sink.feed(std::as_bytes(std::span(file_order)).first(1)), Error);
}

TEST_CASE("Bools from a file are 0 or 1", "[T29]") {
  const std::vector<uint8_t> from = {0, 1, 2, 255};
  std::vector<uint8_t> to(4, 9);
  io::Sink(DType::boolean, {4}, false, false, std::as_writable_bytes(std::span(to)))
      .feed(std::as_bytes(std::span(from)));
  CHECK(to == std::vector<uint8_t>{0, 1, 1, 1});
}

TEST_CASE("Sizes are checked without overflow", "[T18]") {
  CHECK(checked_bytes(DType::float64, Shape{}) == 8);
  CHECK(checked_bytes(DType::float64, Shape{0, kMaxDim, kMaxDim}) == 0);
  CHECK(checked_bytes(DType::uint8, Shape{kMaxDim, 256}) == size_t{1} << 48);
  CHECK_THROWS_AS(checked_bytes(DType::uint8, Shape{kMaxDim, 257}), Error);
  CHECK_THROWS_AS(checked_bytes(DType::uint8, Shape{kMaxDim + 1}), Error);
  CHECK_THROWS_AS(checked_bytes(DType::uint8, Shape{-1}), Error);
  CHECK_THROWS_AS(checked_bytes(DType::uint8, Shape{INT64_MAX, INT64_MAX}), Error);
  CHECK_THROWS_AS(checked_bytes(DType::uint8, Shape(33, 1)), Error);
}

TEST_CASE("NumPy reads what is written here, and writes what is read here", "[T29]") {
  const auto py = python();
  if (!py) SKIP("there is no Python with numpy");
  const fs::path ours = scratch("ours"), theirs = scratch("theirs");
  struct Case {
    DType dtype;
    const char* numpy;
  };
  const auto c =
      GENERATE(Case{DType::boolean, "bool"}, Case{DType::uint8, "uint8"}, Case{DType::int8, "int8"},
               Case{DType::int16, "int16"}, Case{DType::int32, "int32"}, Case{DType::int64, "int64"},
               Case{DType::float16, "float16"}, Case{DType::float32, "float32"}, Case{DType::float64, "float64"});
  const std::string order = GENERATE("C", "F"), endian = GENERATE("<", ">");
  CAPTURE(c.numpy, order, endian);
  // Ours, as numpy reads it, turned into another byte order or layout, as we read it.
  std::string data(24 * static_cast<size_t>(size_of(c.dtype)), '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(c.dtype == DType::boolean ? i % 2 : i * 7 % 120);
  std::ofstream(ours, std::ios::binary) << io::npy_head(c.dtype, Shape{2, 3, 4}) << data;
  const std::string script = "import numpy as n;a=n.load('" + ours.string() + "');assert a.dtype==n." +
                             (c.dtype == DType::boolean ? "bool_" : c.numpy) + " and a.shape==(2,3,4);f=open('" +
                             theirs.string() + "','wb');n.save(f,n.asarray(a.astype(a.dtype.newbyteorder('" + endian +
                             "')),order='" + order + "'))";
  REQUIRE(std::system((*py + " -c \"" + script + "\"").c_str()) == 0);
  const std::string back = slurp(theirs);
  const io::NpyHead head = parse(back);
  CHECK(head.dtype == c.dtype);
  CHECK(head.shape == Shape{2, 3, 4});
  REQUIRE(head.data_offset + head.data_bytes == back.size());
  std::string rows(head.data_bytes, '\0');
  io::Sink(head.dtype, head.shape, head.fortran, head.big_endian, std::as_writable_bytes(std::span(rows)))
      .feed(bytes_of(back).subspan(head.data_offset));
  CHECK(rows == data);
  fs::remove(ours);
  fs::remove(theirs);
}
