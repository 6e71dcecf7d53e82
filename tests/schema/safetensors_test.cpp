#include "schema/safetensors.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "schema/error.h"

using namespace gradwire;
namespace fs = std::filesystem;

namespace {

std::span<const std::byte> bytes_of(const std::string& s) { return std::as_bytes(std::span(s)); }

std::string file(const std::string& json, size_t data = 0) {
  std::string f;
  for (int i = 0; i < 8; ++i) f += static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return f + json + std::string(data, 'x');
}

SafetensorsHead parse(const std::string& f) {
  const auto b = bytes_of(f);
  const size_t n = safetensors_head_bytes(b.first(std::min(b.size(), kSafetensorsPrefix)), f.size());
  return parse_safetensors_head(b.first(n), f.size());
}

bool refused(const std::string& f) {
  try {
    parse(f);
  } catch (const Error& e) {
    return e.code() == Code::bad_tensor;
  }
  return false;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, size_t begin,
                  size_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

}  // namespace

TEST_CASE("A safetensors head is read in the order of its bytes", "[T28]") {
  const auto head = parse(file("{\"__metadata__\":{\"format\":\"pt\"}, " + entry("b", "F32", "[2,2]", 4, 20) + "," +
                                   entry("a", "BF16", "[2]", 0, 4) + "}  ",
                               20));
  REQUIRE(head.tensors.size() == 2);
  CHECK(head.tensors[0].name == "a");
  CHECK(head.tensors[0].dtype == DType::bfloat16);
  CHECK(head.tensors[1].shape == Shape{2, 2});
  CHECK(head.metadata.at("format") == "pt");
}

TEST_CASE("Names of a safetensors head may have escapes", "[T28]") {
  const auto head = parse(file("{" + entry("\\u00e4\\ud83d\\ude00\\n\\\"", "U8", "[1]", 0, 1) + "}", 1));
  CHECK(head.tensors[0].name == "\xC3\xA4\xF0\x9F\x98\x80\n\"");
}

TEST_CASE("Empty tensors may share an offset", "[T28]") {
  const auto head = parse(file("{" + entry("e", "F32", "[0]", 0, 0) + "," + entry("a", "F32", "[1]", 0, 4) + "," +
                                   entry("z", "I64", "[3,0]", 4, 4) + "}",
                               4));
  CHECK(head.tensors.size() == 3);
}

TEST_CASE("Hostile safetensors heads are refused", "[T28]") {
  const std::string a = entry("a", "F32", "[1]", 0, 4);
  const auto [json, data] = GENERATE_COPY(table<std::string, size_t>({
      {"{" + a + "," + entry("b", "F32", "[1]", 0, 4) + "}", 4},            // overlap
      {"{" + a + "," + entry("b", "F32", "[1]", 2, 6) + "}", 6},            // partial overlap
      {"{" + a + "," + entry("b", "F32", "[1]", 8, 12) + "}", 12},          // a hole
      {"{" + entry("a", "F32", "[1]", 4, 8) + "}", 8},                      // a hole in front
      {"{" + a + "}", 5},                                                   // bytes of nobody
      {"{" + a + "}", 3},                                                   // past the end
      {"{" + entry("a", "F32", "[1]", 4, 0) + "}", 4},                      // backwards
      {"{" + entry("a", "F32", "[2]", 0, 4) + "}", 4},                      // shape against length
      {"{" + entry("a", "F32", "[4294967296,4294967296]", 0, 0) + "}", 0},  // overflow
      {"{" + entry("a", "F32", "[18446744073709551615]", 0, 4) + "}", 4},
      {"{" + entry("a", "F32", "[-1]", 0, 4) + "}", 4},
      {"{" + a + "," + a + "}", 4},  // equal names
      {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}," + a + "}", 4},
      {"{\"__metadata__\":{},\"__metadata__\":{}," + a + "}", 4},
      {"{\"__metadata__\":{\"k\":1}," + a + "}", 4},
      {"{" + entry("a", "F4", "[8]", 0, 4) + "}", 4},
      {"{" + entry("a", "F8_E4M3", "[4]", 0, 4) + "}", 4},
      {"{" + entry("a", "U32", "[1]", 0, 4) + "}", 4},
      {" {" + a + "}", 4},
      {"[" + a + "]", 4},
      {"{" + a + "}x", 4},
      {"{" + a + ",}", 4},
      {"{" + a, 4},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4},
      {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
      {"{\"\xFF\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
      {"{\"\\ud800\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
  }));
  CAPTURE(json);
  CHECK(refused(file(json, data)));
}

TEST_CASE("A safetensors file with a wrong length is refused", "[T28]") {
  CHECK(refused(""));
  CHECK(refused(std::string(7, '\0')));
  CHECK(refused(std::string(8, '\0')));                                                // an empty head
  CHECK(refused(std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F{}", 10)));               // over everything
  CHECK(refused(std::string("\x01\xE1\xF5\x05\0\0\0\0", 8) + std::string(100, ' ')));  // 100,000,001
  CHECK(refused("version https://git-lfs.github.com/spec/v1\n"));
  const std::string good = file("{" + entry("a", "F32", "[1]", 0, 4) + "}", 4);
  CHECK_FALSE(refused(good));
  for (size_t n = 0; n < good.size(); ++n) CHECK(refused(good.substr(0, n)));
}

TEST_CASE("PyPI's safetensors reads what is written here, and writes what is read here", "[T28]") {
  std::string py;
  for (const char* p : {"python3", "/usr/bin/python3"}) {
    if (py.empty() && std::system((std::string(p) + " -c 'import numpy, safetensors' >/dev/null 2>&1").c_str()) == 0)
      py = p;
  }
  if (py.empty()) SKIP("there is no Python with safetensors and numpy");
  const auto at = [](const char* n) {
    return (fs::temp_directory_path() / ("gradwire_st_" + std::to_string(::getpid()) + n)).string();
  };
  const std::string ours = at("ours"), theirs = at("theirs");
  const std::vector<SafetensorsEntry> entries = {{"w.\"x\"", DType::float64, {2}, 0, 0},
                                                 {"b", DType::uint8, {3}, 0, 0}};
  std::ofstream(ours, std::ios::binary) << safetensors_head(entries) << std::string(19, '\1');
  std::ofstream(at("py")) << "from safetensors.numpy import load_file as l, save_file as s\nd=l('" << ours
                          << "')\nassert d['b'].tolist()==[1,1,1] and d['w.\"x\"'].shape==(2,)\ns(d,'" << theirs
                          << "')\n";
  REQUIRE(std::system((py + " " + at("py")).c_str()) == 0);
  std::ifstream in(theirs, std::ios::binary);
  const auto head = parse({std::istreambuf_iterator<char>(in), {}});
  CHECK(head.tensors.size() == 2);
  for (const char* n : {"ours", "theirs", "py"}) fs::remove(at(n));
}
