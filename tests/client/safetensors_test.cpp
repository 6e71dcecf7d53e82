// Files of tensors: what is written is read again, and what is broken is refused before a tensor is made.
#include "client/safetensors.h"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>

#include "client/nn/nn.h"
#include "tests/client/folder.h"
#include "tests/client/nn_server.h"

using namespace gradwire;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::StartsWith;

TEST_CASE_METHOD(NnFixture, "Tensors of every dtype come back from a file", "[client][nn][T28]") {
  const Folder folder;
  nn::StateDict<Tensor> dict;
  for (int i = 0; i < kDTypes; ++i) {
    const auto t = static_cast<DType>(i);
    dict.set(std::string("w.") + name(t), (arange(6).to(float32) - 2).to(t).view({2, 3}));
  }
  dict.set("empty", zeros({0, 3}));
  dict.set("scalar", tensor(2.5));
  dict.set("large", randn({300, 400}));
  dict.set("a view", randn({5, 4}).t());
  dict.set("p", ones({2}, {.requires_grad = true}));
  const std::string path = folder / "all.safetensors";
  save_file(path, dict, {{"format", "pt"}, {"note", "\"ü\"\n"}});
  CHECK(folder.count() == 1);
  const auto back = load_file(path);
  REQUIRE(back.size() == dict.size());
  for (size_t i = 0; i < dict.size(); ++i) {
    const auto& [name, t] = dict.entries()[i];
    INFO(name);
    const Tensor& b = back.at(name);
    CHECK(back.entries()[i].first == name);
    CHECK(b.dtype() == t.dtype());
    CHECK(b.shape() == t.shape());
    CHECK(b.to_vector<double>() == t.to_vector<double>());
    CHECK_FALSE(b.requires_grad());
  }
  client::SafetensorsReader file(path);
  CHECK(file.head().metadata == Metadata{{"format", "pt"}, {"note", "\"ü\"\n"}});
  const std::string before = content(path);
  save_file(path, back, file.head().metadata);
  CHECK(content(path) == before);
}

TEST_CASE_METHOD(NnFixture, "A save that fails leaves the file as it was", "[client][nn]") {
  const Folder folder;
  const std::string path = folder / "w";
  save_file(path, {{{"a", ones({2})}}});
  const std::string before = content(path);
  nn::StateDict<Tensor> bad;
  bad.set("a", ones({2}));
  bad.set("b", randn({2}).reshape({3}));
  CHECK_THROWS_AS(save_file(path, bad), Error);
  CHECK_THROWS_AS(save_file(path, {{{"\xff", ones({2})}}}), BadArgument);
  CHECK_THROWS_AS(save_file(path, {{{"__metadata__", ones({2})}}}), BadArgument);
  {
    const SafetensorsEntry e{"a", float32, {2}, 0, 0};
    client::SafetensorsWriter half(path, {&e, 1}, {});
    half.write({});
  }
  CHECK(content(path) == before);
  CHECK(folder.count() == 1);
  CHECK_THROWS_MATCHES(save_file(folder / "no/w", {}), Unavailable, MessageMatches(StartsWith("cannot create ")));
}

TEST_CASE_METHOD(NnFixture, "Broken files are refused", "[client][nn][T28]") {
  const Folder folder;
  const std::string path = folder / "w";
  save_file(path, {{{"a", ones({2})}, {"b", ones({3})}}});
  const std::string good = content(path);
  const auto load = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    load_file(path);
  };
  for (const size_t n : {size_t{0}, size_t{7}, size_t{8}, size_t{20}, good.size() - 1})
    CHECK_THROWS_AS(load(good.substr(0, n)), BadTensor);
  CHECK_THROWS_AS(load(good + "x"), BadTensor);
  CHECK_THROWS_AS(load(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10)), BadTensor);
  CHECK_THROWS_AS(load_file(folder / "none"), Unavailable);
  CHECK_THROWS_AS(load_file(folder.path.string()), Unavailable);
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_AS(load_file(folder / "pipe"), Unavailable);
  std::string head = R"({"t":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})";
  head.insert(0, std::string(1, static_cast<char>(head.size())) + std::string(7, '\0'));
  std::ofstream(path, std::ios::binary) << head << std::string("\0\1\7", 3);
  CHECK(load_file(path).at("t").to_vector<bool>() == std::vector<bool>{false, true, true});
}

TEST_CASE_METHOD(NnFixture, "A model is saved and loaded by name", "[client][nn][E43]") {
  const Folder folder;
  const std::string path = folder / "net.safetensors";
  nn::Sequential a(nn::Conv2d(1, 4, 3), nn::BatchNorm2d(4), nn::ReLU(), nn::Flatten(), nn::Linear(16, 2));
  nn::Sequential b(nn::Conv2d(1, 4, 3), nn::BatchNorm2d(4), nn::ReLU(), nn::Flatten(), nn::Linear(16, 2));
  const auto x = randn({3, 1, 4, 4});
  a(x);
  a.save(path);
  const auto odd = b.load(path);
  CHECK(odd.missing_keys.empty());
  CHECK(odd.unexpected_keys.empty());
  a.eval(), b.eval();
  CHECK(a(x).to_vector<float>() == b(x).to_vector<float>());
  nn::Linear other(2, 2);
  CHECK_THROWS_AS(other.load(path), BadArgument);
}
