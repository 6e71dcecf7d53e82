#include "server/rpc/convert.h"

#include <capnp/dynamic.h>
#include <capnp/message.h>
#include <capnp/serialize.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <ctime>
#include <functional>

#include "schema/wire_columns.h"
#include "server/rpc/limits.h"
#include "tests/server/rig.h"

namespace gradwire::server {
namespace {

Arg arg(ArgKind kind, int64_t i = 0, uint32_t count = 0) {
  Arg a;
  a.kind = kind, a.i = i, a.count = count;
  return a;
}

/// A batch with every kind of argument.
Batch full_batch() {
  Batch b;
  b.seq = 7, b.acked = 3, b.epoch = 2;
  b.texts = {"file.cpp", "mean", std::string("\0\xFF", 2)};
  b.lines = {{0, 11}, {0, 12}};
  b.args = {arg(ArgKind::none),       arg(ArgKind::boolean, 1), arg(ArgKind::integer, -5), arg(ArgKind::real),
            arg(ArgKind::text, 1),    arg(ArgKind::dtype, 9),   arg(ArgKind::tensor, 4),   arg(ArgKind::tensors, 0, 2),
            arg(ArgKind::tensor, 5),  arg(ArgKind::none),       arg(ArgKind::ints, 0, 2),  arg(ArgKind::floats, 0, 1),
            arg(ArgKind::bools, 0, 2)};
  b.args[3].f = 2.5;
  b.args[6].part = Part::grad;
  b.ints = {1, 2, 3, 0, 1};
  b.calls.push_back({3, true, 11, 1, 100});
  b.args.push_back(arg(ArgKind::index, 0, 7));
  b.args.push_back(arg(ArgKind::integer, 1));
  b.args.push_back(arg(ArgKind::boolean, 0));
  b.args.push_back(arg(ArgKind::slice, 0, 7));
  b.args.push_back(arg(ArgKind::ellipsis));
  b.args.push_back(arg(ArgKind::int_array, 0, 2));
  b.args.push_back(arg(ArgKind::bool_array, 0, 1));
  b.args.push_back(arg(ArgKind::tensor, 6));
  for (const int64_t v : {1, 9, 2, 2, 1, 50, 60, 2, 0, 1}) b.ints.push_back(v);
  b.calls.push_back({4, false, 1, 2, 101});
  b.calls.push_back({OpCall::kRelease, true, 0, 0, 100});
  b.fetches = {{101, Part::value, FetchKind::value}, {101, Part::grad, FetchKind::info}};
  return b;
}

Result<NumberedBatch> over_the_wire(const Batch& b) {
  capnp::MallocMessageBuilder m;
  auto root = m.initRoot<wire::Batch>();
  wire::put(root, b);
  return read_batch(root.asReader());
}

TEST_CASE("a batch comes out of the wire as it went in", "[server][rpc]") {
  const Batch b = full_batch();
  const auto got = over_the_wire(b);
  REQUIRE(got);
  const Batch& c = (*got).batch;
  CHECK(c.seq == 7);
  CHECK(c.acked == 3);
  CHECK(c.epoch == 2);
  CHECK(c.texts == b.texts);
  CHECK(c.ints == b.ints);
  REQUIRE(c.calls.size() == b.calls.size());
  for (size_t i = 0; i < b.calls.size(); ++i) {
    CHECK(c.calls[i].op == b.calls[i].op);
    CHECK(c.calls[i].grad_mode == b.calls[i].grad_mode);
    CHECK(c.calls[i].args == b.calls[i].args);
    CHECK(c.calls[i].line == b.calls[i].line);
    CHECK(c.calls[i].out == b.calls[i].out);
  }
  REQUIRE(c.args.size() == b.args.size());
  for (size_t i = 0; i < b.args.size(); ++i) {
    CHECK(c.args[i].kind == b.args[i].kind);
    CHECK(c.args[i].part == b.args[i].part);
    CHECK(c.args[i].count == b.args[i].count);
    CHECK(c.args[i].i == b.args[i].i);
  }
  CHECK(c.lines[1].line == 12);
  CHECK(c.fetches[1].part == Part::grad);
  CHECK(c.fetches[1].kind == FetchKind::info);
}

TEST_CASE("the digest tells every field apart but acked, and no other bytes", "[server][rpc][T46]") {
  const Batch b = full_batch();
  const uint64_t digest = (*over_the_wire(b)).digest;
  const std::vector<std::function<void(Batch&)>> same = {
      [](Batch& c) { c.acked = 5; },
      [](Batch& c) { reinterpret_cast<unsigned char*>(&c.args[2])[2] = 0xAB; },  // a gap between fields
  };
  for (const auto& f : same) {
    Batch c = full_batch();
    f(c);
    CHECK((*over_the_wire(c)).digest == digest);
  }
  const std::vector<std::function<void(Batch&)>> other = {[](Batch& c) { c.seq = 8; },
                                                          [](Batch& c) { c.epoch = 3; },
                                                          [](Batch& c) { c.calls[0].op = 4; },
                                                          [](Batch& c) { c.calls[0].grad_mode = false; },
                                                          [](Batch& c) { c.calls[1].line = 1; },
                                                          [](Batch& c) { c.calls[1].out = 102; },
                                                          [](Batch& c) { c.args[2].i = -6; },
                                                          [](Batch& c) { c.args[6].part = Part::value; },
                                                          [](Batch& c) { c.args[3].f = 2.25; },
                                                          [](Batch& c) { c.ints[0] = 0; },
                                                          [](Batch& c) { c.texts[1] = "meam"; },
                                                          [](Batch& c) { c.texts[1] += '\0'; },
                                                          [](Batch& c) { c.texts.push_back(""); },
                                                          [](Batch& c) { c.lines[0].line = 13; },
                                                          [](Batch& c) { c.fetches[0].id = 1; },
                                                          [](Batch& c) { c.fetches[0].kind = FetchKind::info; },
                                                          [](Batch& c) { c.fetches.pop_back(); },
                                                          [](Batch& c) { std::swap(c.texts[0], c.texts[1]); }};
  std::vector<uint64_t> seen = {digest};
  for (const auto& f : other) {
    Batch c = full_batch();
    f(c);
    const uint64_t d = digest_of(c);
    CHECK(std::find(seen.begin(), seen.end(), d) == seen.end());
    seen.push_back(d);
  }
}

TEST_CASE("lists of a newer version, with larger elements, are read field by field", "[server][rpc][T6]") {
  // A list of structs of three words and a pointer each, as a later schema could write calls.
  capnp::MallocMessageBuilder m;
  auto root = m.initRoot<wire::Batch>();
  root.setSeq(1);
  auto calls =
      capnp::AnyStruct::Builder(wire::Batch::Builder(root)).getPointerSection()[0].initAsListOfAnyStruct(3, 1, 2);
  for (uint i = 0; i < 2; ++i) {
    auto call = calls[i].as<wire::OpCall>();
    call.setOp(static_cast<uint16_t>(40 + i)), call.setGradMode(i == 1), call.setOut(1000 + i);
  }
  const auto got = read_batch(root.asReader());
  REQUIRE(got);
  REQUIRE((*got).batch.calls.size() == 2);
  CHECK((*got).batch.calls[1].op == 41);
  CHECK((*got).batch.calls[1].out == 1001);
  CHECK(!(*got).batch.calls[0].grad_mode);
  CHECK((*got).batch.calls[1].grad_mode);
}

TEST_CASE("what does not fit in a batch is bad_program, and says where", "[server][rpc]") {
  struct Case {
    const char* what;
    std::function<void(Batch&)> spoil;
  };
  const std::vector<Case> cases = {
      {"a call without its arguments", [](Batch& b) { b.args.resize(3); }},
      {"an argument too many", [](Batch& b) { b.args.push_back({}); }},
      {"an integer too many", [](Batch& b) { b.ints.push_back(1); }},
      {"an integer too few", [](Batch& b) { b.ints.pop_back(); }},
      {"an unknown kind", [](Batch& b) { b.args[0].kind = static_cast<ArgKind>(16); }},
      {"the last kind there is", [](Batch& b) { b.args[0].kind = static_cast<ArgKind>(255); }},
      {"an unknown part", [](Batch& b) { b.args[6].part = static_cast<Part>(2); }},
      {"a bool of 2", [](Batch& b) { b.args[1].i = 2; }},
      {"a bool of -1", [](Batch& b) { b.args[1].i = -1; }},
      {"a text beyond the texts", [](Batch& b) { b.args[4].i = 3; }},
      {"a negative text", [](Batch& b) { b.args[4].i = -1; }},
      {"an unknown dtype", [](Batch& b) { b.args[5].i = kDTypes; }},
      {"a list of 2^32 - 1 tensors", [](Batch& b) { b.args[7].count = 0xFFFFFFFF; }},
      {"a list of tensors with a number", [](Batch& b) { b.args[8].kind = ArgKind::integer; }},
      {"2^32 - 1 ints", [](Batch& b) { b.args[10].count = 0xFFFFFFFF; }},
      {"a bool of a list of 3", [](Batch& b) { b.ints[4] = 3; }},
      {"an index of a text", [](Batch& b) { b.args[14].kind = ArgKind::text; }},
      {"an index within an index", [](Batch& b) { b.args[14].kind = ArgKind::index; }},
      {"a slice with a fourth part", [](Batch& b) { b.args[16].count = 8; }},
      {"an array of 33 dimensions", [](Batch& b) { b.args[18].count = 33; }},
      {"an array of a negative size", [](Batch& b) { b.ints[8] = -2; }},
      {"an array of 2^126 values", [](Batch& b) { b.ints[8] = b.ints[9] = INT64_MAX; }},
      {"a line beyond the lines", [](Batch& b) { b.calls[0].line = 3; }},
      {"a file beyond the texts", [](Batch& b) { b.lines[0].file = 3; }},
      {"a fetch of an unknown part", [](Batch& b) { b.fetches[0].part = static_cast<Part>(2); }},
      {"a fetch of an unknown kind", [](Batch& b) { b.fetches[0].kind = static_cast<FetchKind>(2); }},
      {"too many fetches", [](Batch& b) { b.fetches.resize(kMaxFetches + 1); }},
      {"too many calls", [](Batch& b) { b.calls.resize(kMaxCalls + 1); }},
      {"too many texts", [](Batch& b) { b.texts.resize(kMaxCalls + 1); }},
      {"too many ints", [](Batch& b) { b.ints.resize(kMaxArgs + 1); }},
      {"too long texts", [](Batch& b) { b.texts[2].resize(kMaxTexts + 1); }},
  };
  for (const auto& c : cases) {
    CAPTURE(c.what);
    Batch b = full_batch();
    c.spoil(b);
    const auto got = over_the_wire(b);
    REQUIRE(!got);
    CHECK(got.error().code() == Code::bad_program);
  }
  Batch b = full_batch();
  b.args[5].i = 77;
  CHECK(over_the_wire(b).error().seq() == 7);
  CHECK(over_the_wire(b).error().step() == 0);
  CHECK(over_the_wire(b).error().message() == "call 0 of the batch has an unknown dtype");
}

TEST_CASE("messages that lie about themselves are refused in no time", "[server][rpc][T2]") {
  // A Batch by hand: four words of data and six pointers behind the root pointer.
  using Word = uint64_t;
  const auto batch = [](std::vector<Word> pointers, std::vector<Word> rest) {
    std::vector<Word> w = {uint64_t{4} << 32 | uint64_t{6} << 48, 1, 0, 0, 0};
    pointers.resize(6);
    w.insert(w.end(), pointers.begin(), pointers.end());
    w.insert(w.end(), rest.begin(), rest.end());
    return w;
  };
  const auto list = [](int32_t offset, uint32_t element, uint64_t count) {
    return uint64_t{1} | static_cast<uint64_t>(static_cast<uint32_t>(offset) << 2) | uint64_t{element} << 32 |
           count << 35;
  };
  struct Case {
    const char* what;
    std::vector<Word> words;
  };
  std::vector<Case> cases = {
      {"2^29 - 1 structs of nothing", batch({list(5, 7, 0)}, {((uint64_t{1} << 29) - 1) << 2})},
      {"2^29 - 1 void arguments", batch({0, list(4, 0, (1 << 29) - 1)}, {})},
      {"a list that begins before the message", batch({list(-100, 3, 4)}, {})},
      {"a list that ends after the message", batch({list(5, 7, 1000)}, {0})},
      {"a list whose tag counts more than it holds",
       batch({list(5, 7, 2)}, {uint64_t{9} << 2 | uint64_t{2} << 32, 0, 0})},
      {"a struct where a list should be", batch({uint64_t{5} << 2 | uint64_t{1} << 32}, {0})},
  };
  {
    // 65,536 texts which are all the same 2 MiB: 128 GiB to read.
    const uint32_t n = kMaxCalls;
    std::vector<Word> rest;
    for (uint32_t i = 0; i < n; ++i) rest.push_back(list(static_cast<int32_t>(n - i - 1), 2, 2 << 20));
    rest.resize(n + (2 << 20) / 8);
    cases.push_back({"texts that lie over each other", batch({0, 0, 0, list(2, 6, n)}, rest)});
  }
  for (const auto& c : cases) {
    CAPTURE(c.what);
    const auto begin = std::clock();
    const kj::ArrayPtr<const capnp::word> segment(reinterpret_cast<const capnp::word*>(c.words.data()), c.words.size());
    capnp::ReaderOptions options;
    options.traversalLimitInWords = 4 << 20;
    capnp::SegmentArrayMessageReader reader(kj::arrayPtr(&segment, 1), options);
    const auto got = read_batch(reader.getRoot<wire::Batch>());
    CHECK(!got);
    if (!got) CHECK(got.error().code() == Code::bad_program);
    CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 0.05);
  }
}

TEST_CASE("an outcome keeps large values out, each and in sum", "[server][rpc]") {
  const auto bytes = std::make_shared<std::vector<std::byte>>(kInlineValue + 1, std::byte{7});
  Outcome o;
  o.seq = 5;
  const auto add = [&](size_t size) {
    Fetched f;
    f.present = true;
    f.value.bytes = {bytes, bytes->data(), size};
    f.value.info.shape = {static_cast<int64_t>(size)};
    o.fetched.push_back(std::move(f));
  };
  add(kInlineValue), add(kInlineValue + 1), add(0), add(1);
  o.fetched.emplace_back();
  for (int i = 0; i < 20; ++i) add(kInlineValue);
  o.warnings.push_back({"mean", "a warning", 3});
  capnp::MallocMessageBuilder m;
  auto root = m.initRoot<wire::Outcome>();
  write(root, o);
  const auto r = root.asReader().getFetched();
  CHECK(r[0].getData().size() == kInlineValue);
  CHECK(r[1].getData().size() == 0);
  CHECK(r[1].getSize() == kInlineValue + 1);
  CHECK(r[2].getPresent());
  CHECK(r[3].getData()[0] == 7);
  CHECK(!r[4].getPresent());
  size_t sum = 0;
  for (const auto f : r) sum += f.getData().size();
  CHECK(sum <= kInlineSum);
  CHECK(sum > kInlineSum - kInlineValue);
  CHECK(m.getSegmentsForOutput().size() < 20);
  CHECK(root.asReader().getWarnings()[0].getStep() == 3);
  CHECK(root.asReader().getSeq() == 5);
}

}  // namespace
}  // namespace gradwire::server
