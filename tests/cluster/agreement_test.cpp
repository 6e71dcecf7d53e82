#include "server/cluster/agreement.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/cluster/rig.h"

namespace gradwire::server::cluster {
namespace {

using Catch::Matchers::ContainsSubstring;

const Moment kNow{};

Call call(uint64_t sequence, Terms t, Milliseconds patience = Milliseconds(1000)) {
  Call c;
  c.sequence = sequence, c.terms = t, c.patience = patience;
  return c;
}
Call new_group(uint64_t sequence, std::vector<int> ranks) {
  Call c;
  c.sequence = sequence, c.split = true, c.ranks = std::move(ranks), c.patience = Milliseconds(1000);
  return c;
}

TEST_CASE("a collective is let go when the last rank has called it, in the order of the calls", "[cluster][T40]") {
  Agreement a(3);
  CHECK(a.call(0, call(0, terms(Collective::all_reduce)), kNow).verdicts.empty());
  CHECK(a.call(0, call(1, terms(Collective::barrier)), kNow).verdicts.empty());
  CHECK(a.call(1, call(0, terms(Collective::all_reduce)), kNow).verdicts.empty());
  const auto first = a.call(2, call(0, terms(Collective::all_reduce)), kNow);
  REQUIRE(first.verdicts.size() == 3);
  for (auto& [rank, v] : first.verdicts) {
    CHECK(!v.error);
    CHECK(v.sequence == 0);
  }
  CHECK(a.call(1, call(1, terms(Collective::barrier)), kNow).verdicts.empty());
  CHECK(a.call(2, call(1, terms(Collective::barrier)), kNow).verdicts.size() == 3);
}

TEST_CASE("every pair of differences among 2 to 5 ranks is named to all, and the next collective goes on",
          "[cluster][T40][H29]") {
  struct Difference {
    Terms one, other;
    const char* text;
  };
  const auto sum = ReduceOp::sum;
  const Difference differences[] = {
      {terms(Collective::all_reduce), terms(Collective::barrier), "the ranks call different collectives: "},
      {terms(Collective::all_reduce, 4), terms(Collective::all_reduce, 5),
       "all_reduce: tensors are not equal in size or data type: "},
      {terms(Collective::all_reduce, 4), terms(Collective::all_reduce, 4, DType::float64),
       "all_reduce: tensors are not equal in size or data type: "},
      {terms(Collective::reduce, 4), terms(Collective::reduce, 4, DType::float32, ReduceOp::max),
       "reduce: reduce operations are not equal: "},
      {terms(Collective::broadcast, 4), terms(Collective::broadcast, 4, DType::float32, sum, 1),
       "broadcast: roots are not equal: "},
      {terms(Collective::gather, 1), terms(Collective::scatter, 1), "the ranks call different collectives: "},
      {terms(Collective::all_gather, 0), terms(Collective::all_gather, 1),
       "all_gather: tensors are not equal in size or data type: "},
      {terms(Collective::reduce_scatter, 1), terms(Collective::reduce_scatter, 2),
       "reduce_scatter: tensors are not equal in size or data type: "},
  };
  for (int size = 2; size <= 5; ++size) {
    Agreement a(size);
    uint64_t sequence = 0;
    for (const auto& d : differences) {
      for (int odd = 0; odd < size; ++odd) {
        Agreement::Outcome out;
        for (int r = 0; r < size; ++r) out = a.call(r, call(sequence, r == odd ? d.other : d.one), kNow);
        ++sequence;
        CAPTURE(size, odd, d.text);
        REQUIRE(out.verdicts.size() == static_cast<size_t>(size));
        for (auto& [rank, v] : out.verdicts) {
          REQUIRE(v.error);
          CHECK(v.error->code() == Code::group_mismatch);
          CHECK_THAT(v.error->message(), ContainsSubstring(d.text));
          CHECK_THAT(v.error->message(), ContainsSubstring("rank " + std::to_string(odd) + " "));
        }
      }
    }
    Agreement::Outcome fine;
    for (int r = 0; r < size; ++r) fine = a.call(r, call(sequence, terms(Collective::barrier, r)), kNow);
    CHECK((!fine.verdicts.empty() && !fine.verdicts[0].second.error));
  }
}

TEST_CASE("a difference has both values in words", "[cluster][T40]") {
  Agreement a(3);
  a.call(0, call(0, terms(Collective::all_reduce, 4)), kNow);
  a.call(1, call(0, terms(Collective::all_reduce, 1, DType::float64, ReduceOp::max)), kNow);
  const auto out = a.call(2, call(0, terms(Collective::all_reduce, 4)), kNow);
  CHECK(out.verdicts.at(2).second.error->message() ==
        "all_reduce: tensors are not equal in size or data type: ranks 0, 2 have float32 of 4 elements, rank 1 has "
        "float64 of 1 element; reduce operations are not equal: ranks 0, 2 have SUM, rank 1 has MAX");
}

TEST_CASE("gradients of different models or buckets are not added up, though their sizes are alike", "[cluster][T40]") {
  Agreement a(2);
  Terms one = terms(Collective::all_reduce, 4), other = one;
  one.part = 0xab0002, other.part = 0xcd0000;
  a.call(0, call(0, one), kNow);
  CHECK(a.call(1, call(0, other), kNow).verdicts.at(0).second.error->message() ==
        "all_reduce: buckets of gradients are not equal: rank 0 has bucket 2 of model ab, rank 1 has bucket 0 of model "
        "cd");
  one.what = other.what = Collective::broadcast, one.root = other.root = 0;
  one.part = 0xab0000 | Terms::kList, other.part = 0xcd0000 | Terms::kList;
  a.call(0, call(1, one), kNow);
  CHECK(a.call(1, call(1, other), kNow).verdicts.at(0).second.error->message() ==
        "broadcast: lists of tensors are not equal in number, shapes or data types: rank 0 has list ab, rank 1 has "
        "list cd");
  a.call(0, call(2, one), kNow);
  CHECK(!a.call(1, call(2, one), kNow).verdicts.at(0).second.error);
}

TEST_CASE("what no collective reads may differ", "[cluster][T40]") {
  Agreement a(2);
  a.call(0, call(0, terms(Collective::broadcast, 4, DType::float32, ReduceOp::max, 1)), kNow);
  CHECK(!a.call(1, call(0, terms(Collective::broadcast, 4, DType::float32, ReduceOp::min, 1)), kNow)
             .verdicts.at(0)
             .second.error);
  a.call(0, call(1, terms(Collective::barrier, 7, DType::int8, ReduceOp::max, 3)), kNow);
  CHECK(!a.call(1, call(1, terms(Collective::barrier)), kNow).verdicts.at(0).second.error);
}

TEST_CASE("a root that is no rank is an error for all", "[cluster][H27]") {
  Agreement a(2);
  a.call(0, call(0, terms(Collective::broadcast, 4, DType::float32, ReduceOp::sum, 2)), kNow);
  const auto out = a.call(1, call(0, terms(Collective::broadcast, 4, DType::float32, ReduceOp::sum, 2)), kNow);
  CHECK(out.verdicts.at(0).second.error->message() ==
        "broadcast: rank(2) is not member of group: its ranks are [0, 1]");
}

TEST_CASE("new_group is agreed on as collectives are, with PyTorch's texts", "[cluster][H27]") {
  const std::pair<std::vector<int>, const char*> wrong[] = {
      {{}, "cannot create empty group"},
      {{0, 4}, "array of ranks contains invalid rank, all ranks should be in range: [0, 3]"},
      {{-1}, "array of ranks contains invalid rank, all ranks should be in range: [0, 3]"},
      {{1, 1}, "array of ranks contains rank 1 twice"}};
  Agreement a(4);
  uint64_t sequence = 0;
  Agreement::Outcome out;
  for (auto& [ranks, text] : wrong) {
    for (int r = 0; r < 4; ++r) out = a.call(r, new_group(sequence, ranks), kNow);
    ++sequence;
    CHECK(out.verdicts.at(3).second.error->message() == text);
    CHECK(out.verdicts.at(3).second.error->code() == Code::bad_argument);
  }
  for (int r = 0; r < 4; ++r)
    out = a.call(r, new_group(sequence, r == 2 ? std::vector<int>{1} : std::vector<int>{3, 1}), kNow);
  CHECK(out.verdicts.at(0).second.error->message() ==
        "new_group: the arrays of ranks are not equal: ranks 0, 1, 3 have [3, 1], rank 2 has [1]");
  ++sequence;
  for (int r = 0; r < 4; ++r) out = a.call(r, new_group(sequence, {3, 1}), kNow);
  REQUIRE(out.split);
  CHECK(*out.split == std::vector<int>{1, 3});
}

TEST_CASE("a receiver without a source gets the first sender by arrival", "[cluster][H16]") {
  Agreement a(3);
  const auto send = [&](int from, uint64_t n, int to) {
    return a.call(from, call(n, terms(Collective::send, 4, DType::float32, ReduceOp::sum, to)), kNow);
  };
  const auto recv = [&](int at, uint64_t n, int from) {
    return a.call(at, call(n, terms(Collective::recv, 4, DType::float32, ReduceOp::sum, from)), kNow);
  };
  CHECK(send(2, 0, 0).verdicts.empty());
  CHECK(send(1, 0, 0).verdicts.empty());
  CHECK(send(2, 1, 0).verdicts.empty());
  auto out = recv(0, 0, -1);
  REQUIRE(out.verdicts.size() == 2);
  CHECK(out.verdicts[1].second.source == 2);
  CHECK(out.verdicts[0].second.tag == out.verdicts[1].second.tag);
  CHECK(recv(0, 1, 2).verdicts.at(0).second.sequence == 1);  // the second of rank 2, before the first of rank 1
  CHECK(recv(0, 2, -1).verdicts.at(1).second.source == 1);
  CHECK(recv(0, 3, 1).verdicts.empty());
  CHECK(send(2, 2, 0).verdicts.empty());
  CHECK(send(1, 1, 0).verdicts.size() == 2);
}

TEST_CASE("messages of other sizes are refused on both sides", "[cluster][H18]") {
  Agreement a(2);
  a.call(0, call(0, terms(Collective::send, 4, DType::float32, ReduceOp::sum, 1)), kNow);
  const auto out = a.call(1, call(0, terms(Collective::recv, 5, DType::float32, ReduceOp::sum, 0)), kNow);
  REQUIRE(out.verdicts.size() == 2);
  for (auto& [_, v] : out.verdicts) {
    CHECK(v.error->code() == Code::group_mismatch);
    CHECK(v.error->message() ==
          "tensor sizes do not match: rank 0 sends float32 of 4 elements, rank 1 receives float32 of 5 elements");
  }
}

TEST_CASE("what is not called in time is named", "[cluster][H36]") {
  Agreement a(4);
  a.call(0, call(0, terms(Collective::all_reduce), Milliseconds(500)), kNow);
  a.call(3, call(0, terms(Collective::all_reduce), Milliseconds(900)), kNow);
  CHECK(!a.overdue(kNow + Milliseconds(499)));
  const auto error = a.overdue(kNow + Milliseconds(500));
  REQUIRE(error);
  CHECK(error->code() == Code::deadline_exceeded);
  CHECK(error->message() == "all_reduce: ranks 1, 2 did not call it within 500 ms");

  Agreement b(2);
  b.call(1, call(0, terms(Collective::recv, 4, DType::float32, ReduceOp::sum, 0), Milliseconds(10)), kNow);
  CHECK(b.expired(kNow).verdicts.empty());
  const auto out = b.expired(kNow + Milliseconds(10));
  REQUIRE(out.verdicts.size() == 1);
  CHECK(out.verdicts[0].second.error->message() == "recv: rank 0 has not called send within 10 ms");
  // It is withdrawn: a send that comes later waits for another.
  CHECK(b.call(0, call(0, terms(Collective::send, 4, DType::float32, ReduceOp::sum, 1)), kNow).verdicts.empty());
}

TEST_CASE("a member that breaks the rules is refused and costs nothing", "[cluster][T39]") {
  Agreement a(2);
  CHECK_THROWS_AS(a.call(0, call(1, terms(Collective::barrier)), kNow), Error);
  CHECK_THROWS_AS(a.call(0, call(0, terms(Collective::send, 4, DType::float32, ReduceOp::sum, 0)), kNow), Error);
  CHECK_THROWS_AS(a.call(0, call(0, terms(Collective::send, 4, DType::float32, ReduceOp::sum, -1)), kNow), Error);
  CHECK_THROWS_AS(a.call(0, call(0, terms(Collective::recv, 4, DType::float32, ReduceOp::sum, 2)), kNow), Error);
  for (uint64_t i = 0; i < kMaxPending; ++i) a.call(0, call(i, terms(Collective::barrier)), kNow);
  CHECK_THROWS_AS(a.call(0, call(kMaxPending, terms(Collective::barrier)), kNow), Error);
  for (uint64_t i = 0; i < kMaxPending; ++i)
    a.call(0, call(i, terms(Collective::recv, 4, DType::float32, ReduceOp::sum, 1)), kNow);
  CHECK_THROWS_AS(a.call(0, call(0, terms(Collective::recv, 4, DType::float32, ReduceOp::sum, 1)), kNow), Error);
}

}  // namespace
}  // namespace gradwire::server::cluster
