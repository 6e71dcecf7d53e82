#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "server/executor.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/program.h"
#include "server/service.h"

namespace gradwire::server {

/// Stands still until told otherwise.
class TestClock final : public Clock {
 public:
  time_point now() const override { return time_point(std::chrono::nanoseconds(ns_.load())); }
  void advance(std::chrono::nanoseconds by) { ns_ += by.count(); }

 private:
  std::atomic<int64_t> ns_{1};
};

/// A Service with all below it.
struct Rig {
  explicit Rig(Options o = {}, int lanes = 2, QueueLimits limits = {})
      : options(std::move(o)), executor(clock, metrics, lanes, 1, limits), service(options, executor, clock, metrics) {}
  Options options;
  Clock clock;
  Metrics metrics;
  Executor executor;
  Service service;
  SessionPtr open(SessionOptions o = {}) {
    auto r = service.open(o);
    if (!r) throw r.error();
    return *r;
  }
};

/// What `start(done)` calls back with.
template <class R, class F> R wait(F start) {
  std::promise<R> promise;
  auto future = promise.get_future();
  start(Done<R>([&promise](R r) { promise.set_value(std::move(r)); }));
  return future.get();
}

using Answer = std::shared_ptr<const Outcome>;

/// Writes batches as a client would.
struct BatchMaker {
  Batch b;
  explicit BatchMaker(uint64_t seq, uint64_t epoch = 1, uint64_t acked = 0) {
    b.seq = seq, b.epoch = epoch, b.acked = acked;
  }
  static Arg tensor(uint64_t id, Part part = Part::value) {
    Arg a;
    a.kind = ArgKind::tensor, a.id = id, a.part = part;
    return a;
  }
  static Arg integer(int64_t i) {
    Arg a;
    a.kind = ArgKind::integer, a.i = i;
    return a;
  }
  BatchMaker& upload(uint64_t out, std::vector<float> values, bool requires_grad = false) {
    std::string bytes(values.size() * 4, '\0');
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    Arg dtype, shape, text, flag;
    dtype.kind = ArgKind::dtype, dtype.i = static_cast<int>(DType::float32);
    shape.kind = ArgKind::ints, shape.count = 1;
    text.kind = ArgKind::text, text.i = static_cast<int64_t>(b.texts.size());
    flag.kind = ArgKind::boolean, flag.i = requires_grad;
    b.texts.push_back(bytes);
    b.ints.push_back(static_cast<int64_t>(values.size()));
    return call(OpCall::kUpload, {dtype, shape, text, flag}, out);
  }
  BatchMaker& call(uint16_t op, std::vector<Arg> args, uint64_t out, bool grad_mode = true) {
    OpCall c;
    c.op = op, c.grad_mode = grad_mode, c.args = static_cast<uint8_t>(args.size()), c.out = out;
    b.args.insert(b.args.end(), args.begin(), args.end());
    b.calls.push_back(c);
    return *this;
  }
  /// The place of the last call in the user's program.
  BatchMaker& at(std::string file, uint32_t line) {
    b.texts.push_back(std::move(file));
    b.lines.push_back({static_cast<uint32_t>(b.texts.size() - 1), line});
    b.calls.back().line = static_cast<uint32_t>(b.lines.size());
    return *this;
  }
  BatchMaker& release(uint64_t id) { return call(OpCall::kRelease, {}, id); }
  BatchMaker& fetch(uint64_t id, Part part = Part::value, FetchKind kind = FetchKind::value) {
    b.fetches.push_back({id, part, kind});
    return *this;
  }
};

inline Answer run(Session& s, const BatchMaker& m, uint64_t digest = 7) {
  return wait<Answer>([&](auto done) { s.run(m.b, digest, std::move(done)); });
}

inline std::vector<float> floats(const TensorValue& v) {
  std::vector<float> out(v.bytes.size / sizeof(float));
  if (!out.empty()) std::memcpy(out.data(), v.bytes.data, v.bytes.size);
  return out;
}

/// The catalogue index of an operator.
inline uint16_t op(Rig& rig, const std::string& name) {
  static const std::vector<std::string> all = rig.service.info().operators;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == name) return static_cast<uint16_t>(i);
  }
  throw Error(Code::unknown_operator, name);
}

/// Resident memory of this process, in bytes; 0 under a sanitizer, which keeps what was freed.
int64_t resident();

}  // namespace gradwire::server
