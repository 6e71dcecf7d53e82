#pragma once

#include <catch2/catch_test_macros.hpp>
#include <future>
#include <string>
#include <vector>

#include "server/http/json_program.h"
#include "tests/server/rig.h"
#include "tests/support/fake_cluster.h"

namespace gradwire::server {

/// One server whose sessions are the ranks of a group, with a cluster that is pretended.
struct Ranks {
  explicit Ranks(int n, int lanes = 2, std::chrono::milliseconds timeout = std::chrono::minutes(5)) : rig({}, lanes) {
    rig.service.use(&cluster);
    for (int i = 0; i < n; ++i) sessions.push_back(rig.open());
    std::vector<std::future<Result<GroupInfo>>> joined;
    for (int i = 0; i < n; ++i) joined.push_back(join(i, n, timeout));
    for (auto& j : joined) REQUIRE(j.get());
  }
  std::future<Result<GroupInfo>> join(int rank, int size, std::chrono::milliseconds timeout) {
    cluster::JoinOptions o;
    o.init_method = "tcp://fake", o.world_size = size, o.rank = rank, o.timeout = timeout;
    auto promise = std::make_shared<std::promise<Result<GroupInfo>>>();
    sessions[static_cast<size_t>(rank)]->join_group(
        "world", o, [promise](Result<GroupInfo> r) { promise->set_value(std::move(r)); });
    return promise->get_future();
  }
  /// Starts a program in the notation of the HTTP interface.
  std::future<Result<ProgramResult>> start(int rank, const std::string& json) {
    auto promise = std::make_shared<std::promise<Result<ProgramResult>>>();
    const auto program = http::read_program(http::Doc(json).root(), DType::float32, http::Use::run);
    sessions[static_cast<size_t>(rank)]->run(program, {},
                                             [promise](Result<ProgramResult> r) { promise->set_value(std::move(r)); });
    return promise->get_future();
  }
  /// The same program on all ranks, with R in its text standing for the rank and V for the rank + 1.
  std::vector<Result<ProgramResult>> all(const std::string& json) {
    std::vector<std::future<Result<ProgramResult>>> started;
    for (int i = 0; i < static_cast<int>(sessions.size()); ++i) started.push_back(start(i, written(json, i)));
    std::vector<Result<ProgramResult>> results;
    for (auto& s : started) results.push_back(s.get());
    return results;
  }
  static std::string written(std::string json, int rank) {
    for (const auto& [mark, n] : {std::pair("@R", rank), std::pair("@V", rank + 1)}) {
      for (size_t at; (at = json.find(mark)) != std::string::npos;) json.replace(at, 2, std::to_string(n));
    }
    return json;
  }

  cluster::FakeCluster cluster;
  Rig rig;
  std::vector<SessionPtr> sessions;
};

/// The values of the first tensor that was fetched, or what went wrong.
inline std::string said(const Result<ProgramResult>& r) {
  if (!r) return std::string(name(r.error().code())) + ": " + r.error().message();
  if ((*r).tensors.empty()) return "nothing";
  const auto& value = (*r).tensors[0].second;
  if (!value) return "null";
  std::string s;
  const auto put = [&]<class T>(T) {
    std::vector<T> v(value->bytes.size / sizeof(T));
    if (!v.empty()) std::memcpy(v.data(), value->bytes.data, value->bytes.size);
    for (const T x : v) {
      std::string t = std::to_string(x);
      if (t.find('.') != std::string::npos) {
        while (t.back() == '0') t.pop_back();
        if (t.back() == '.') t.pop_back();
      }
      s += (s.empty() ? "" : " ") + t;
    }
  };
  switch (value->info.dtype) {
    case DType::float32:
      put(float());
      break;
    case DType::float64:
      put(double());
      break;
    case DType::int64:
      put(int64_t());
      break;
    case DType::int32:
      put(int32_t());
      break;
    case DType::int16:
      put(int16_t());
      break;
    case DType::int8:
      put(int8_t());
      break;
    default:
      size_of(value->info.dtype) == 2 ? put(uint16_t()) : put(uint8_t());
  }
  return s;
}
inline std::vector<std::string> said(const std::vector<Result<ProgramResult>>& all) {
  std::vector<std::string> s;
  for (const auto& r : all) s.push_back(said(r));
  return s;
}
using Said = std::vector<std::string>;

}  // namespace gradwire::server
