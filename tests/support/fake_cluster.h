#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "server/cluster/group.h"

namespace gradwire::server::cluster {

/// All ranks in one process, behind the interfaces of the real cluster: ranks that name one init_method and group_name
/// form a group, and a collective is computed when all have started it. Answers come on a thread of its own. While
/// `hold` is set nothing is answered but deadlines and ranks that leave.
class FakeHub : public std::enable_shared_from_this<FakeHub> {
 public:
  void begin() {
    thread_ = std::thread([this] { run(); });
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      wake_.notify_all();
    }
    thread_.join();
  }

  void join(JoinOptions o, Done<Result<GroupPtr>> done) {
    const std::lock_guard lock(mutex_);
    if (o.backend != "gloo")
      return post([d = std::move(done), b = o.backend]() mutable {
        d(Error(Code::bad_argument, "Invalid distributed backend name: " + b));
      });
    auto& waiting = joining_[o.init_method + "\n" + o.group_name];
    environments_.push_back(o.environment);
    waiting.push_back({o, std::move(done)});
    ++asked_;
    changed_.notify_all();
    if (static_cast<int>(waiting.size()) < o.world_size) return;
    auto room = std::make_shared<Room>(o.world_size);
    rooms_.push_back(room);
    for (auto& j : waiting) {
      GroupPtr g = std::make_shared<FakeGroup>(shared_from_this(), room, j.options.rank, j.options.timeout);
      post([d = std::move(j.done), g = std::move(g)]() mutable { d(std::move(g)); });
    }
    waiting.clear();
  }

  /// Nothing is answered from here on; and what was held is answered.
  void hold() {
    const std::lock_guard lock(mutex_);
    held_ = true;
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    held_ = false;
    wake_.notify_all();
  }
  /// The next collective that is complete fails with this on all its ranks.
  void fail_next(Error e) {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(e);
  }
  /// Waits until so many works have been started, and are not answered.
  void wait_for_started(int n) {
    await([&] { return open_ >= n; });
  }
  /// Waits until so many have asked for a group of some ranks, since the beginning.
  void wait_for_split(int n) {
    await([&] { return split_ >= n; });
  }
  /// Waits until so many have asked to join.
  void wait_for_joining(int n) {
    await([&] { return asked_ >= n; });
  }
  /// Waits until nobody waits for any of those who have asked to join.
  void wait_for_abandoned() {
    const auto abandoned = [&] {
      const std::lock_guard lock(mutex_);
      for (auto& [_, all] : joining_) {
        for (auto& j : all) {
          if (!j.options.abandoned()) return false;
        }
      }
      return true;
    };
    const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!abandoned()) {
      if (std::chrono::steady_clock::now() > late) throw std::runtime_error("somebody still waits");
      std::this_thread::yield();
    }
  }
  /// Waits until so many groups have been left.
  void wait_for_left(int n) {
    await([&] { return left_ >= n; });
  }
  std::vector<std::vector<std::pair<std::string, std::string>>> environments() {
    const std::lock_guard lock(mutex_);
    return environments_;
  }
  /// Areas that somebody holds.
  static int areas() { return HeapArea::living; }
  /// The works that were answered, as rank 0 started them.
  std::vector<Terms> seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  template <class F> void await(F there) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(20), there)) throw std::runtime_error("it does not come");
  }
  struct HeapArea final : Area {
    explicit HeapArea(size_t n) : room(n) { bytes = room, ++living; }
    ~HeapArea() override { --living; }
    std::vector<std::byte> room;
    static inline std::atomic<int> living = 0;
  };
  struct Started {
    int rank;
    Work work;
  };
  struct Split {
    std::vector<int> ranks;
    Done<Result<GroupPtr>> done;
    std::chrono::milliseconds timeout;
  };
  /// What the ranks of one group share.
  struct Room {
    explicit Room(int n) : size(n), queues(static_cast<size_t>(n)), splits(queues.size()) {}
    const int size;
    std::vector<std::deque<Work>> queues;  // by rank: collectives in order
    std::vector<Started> messages;         // send and recv
    std::vector<std::deque<Split>> splits;
    std::optional<Error> broken;
  };
  using RoomPtr = std::shared_ptr<Room>;

  class FakeGroup final : public Group {
   public:
    FakeGroup(std::shared_ptr<FakeHub> hub, RoomPtr room, int rank, std::chrono::milliseconds timeout)
        : hub_(std::move(hub)), room_(std::move(room)), rank_(rank), timeout_(timeout) {}
    ~FakeGroup() override {
      FakeHub& c = *hub_;
      const std::lock_guard lock(c.mutex_);
      if (!room_->broken)
        room_->broken = Error(Code::unavailable, "rank " + std::to_string(rank_) + " has left the group");
      ++c.left_;
      c.changed_.notify_all();
      c.wake_.notify_all();
    }
    int rank() const override { return rank_; }
    int size() const override { return room_->size; }
    uint64_t epoch() const override { return 1; }
    std::chrono::milliseconds timeout() const override { return timeout_; }
    AreaPtr area(size_t bytes) override { return std::make_shared<HeapArea>(bytes); }
    void start(Work w) override {
      FakeHub& c = *hub_;
      const std::lock_guard lock(c.mutex_);
      ++c.open_;
      if (is_pairwise(w.terms.what))
        room_->messages.push_back({rank_, std::move(w)});
      else
        room_->queues[static_cast<size_t>(rank_)].push_back(std::move(w));
      c.changed_.notify_all();
      c.wake_.notify_all();
    }
    void split(std::vector<int> ranks, Done<Result<GroupPtr>> done) override {
      FakeHub& c = *hub_;
      const std::lock_guard lock(c.mutex_);
      room_->splits[static_cast<size_t>(rank_)].push_back({std::move(ranks), std::move(done), timeout_});
      ++c.split_;
      c.changed_.notify_all();
      c.wake_.notify_all();
    }

   private:
    const std::shared_ptr<FakeHub> hub_;
    const RoomPtr room_;
    const int rank_;
    const std::chrono::milliseconds timeout_;
  };
  struct Joining {
    JoinOptions options;
    Done<Result<GroupPtr>> done;
  };

  struct Call {
    virtual ~Call() = default;
    virtual void run() = 0;
  };
  template <class F> void post(F f) {  // locked
    struct Holder final : Call {
      explicit Holder(F g) : f(std::move(g)) {}
      void run() override { f(); }
      F f;
    };
    calls_.push_back(std::make_unique<Holder>(std::move(f)));
    wake_.notify_all();
  }
  void answer(Work w, Result<int> r) {  // locked
    --open_;
    post([done = std::move(w.done), r = std::move(r)]() mutable { done(std::move(r)); });
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!stop_ || !calls_.empty()) {
      while (!calls_.empty()) {
        auto call = std::move(calls_.front());
        calls_.pop_front();
        lock.unlock();
        call->run();
        call.reset();
        lock.lock();
      }
      if (stop_) return;
      for (size_t i = 0; i < rooms_.size(); ++i) {
        const RoomPtr room = rooms_[i];
        look(*room);
      }
      if (!calls_.empty()) continue;
      const auto next = deadline();
      if (next)
        wake_.wait_until(lock, *next);
      else
        wake_.wait(lock);
    }
  }

  std::optional<std::chrono::steady_clock::time_point> deadline() const {
    std::optional<std::chrono::steady_clock::time_point> first;
    const auto see = [&](const Work& w) { first = first ? std::min(*first, w.deadline) : w.deadline; };
    for (const auto& r : rooms_) {
      for (const auto& q : r->queues) std::for_each(q.begin(), q.end(), see);
      for (const auto& m : r->messages) see(m.work);
    }
    return first;
  }

  void look(Room& r) {
    const auto now = std::chrono::steady_clock::now();
    for (const auto& q : r.queues) {
      if (!q.empty() && q.front().deadline <= now && !r.broken)
        r.broken = Error(Code::deadline_exceeded, "a rank did not take part in time");
    }
    if (r.broken) {
      for (auto& q : r.queues) {
        for (auto& w : std::exchange(q, {})) answer(std::move(w), *r.broken);
      }
      for (auto& m : std::exchange(r.messages, {})) answer(std::move(m.work), *r.broken);
      for (auto& q : r.splits) {
        for (auto& s : std::exchange(q, {}))
          post([d = std::move(s.done), e = *r.broken]() mutable { d(std::move(e)); });
      }
      return;
    }
    if (held_) return;
    while (std::none_of(r.queues.begin(), r.queues.end(), [](auto& q) { return q.empty(); })) collective(r);
    while (message(r)) {}
    while (std::none_of(r.splits.begin(), r.splits.end(), [](auto& q) { return q.empty(); })) split(r);
  }

  void split(Room& r) {
    std::vector<int> ranks = r.splits[0].front().ranks;
    std::sort(ranks.begin(), ranks.end());
    auto room = std::make_shared<Room>(static_cast<int>(ranks.size()));
    rooms_.push_back(room);
    for (int i = 0; i < r.size; ++i) {
      Split s = std::move(r.splits[static_cast<size_t>(i)].front());
      r.splits[static_cast<size_t>(i)].pop_front();
      const auto at = std::find(ranks.begin(), ranks.end(), i);
      GroupPtr g;
      if (at != ranks.end())
        g = std::make_shared<FakeGroup>(shared_from_this(), room, static_cast<int>(at - ranks.begin()), s.timeout);
      post([d = std::move(s.done), g = std::move(g)]() mutable { d(std::move(g)); });
    }
  }

  static bool same(const Terms& a, const Terms& b) {
    return a.what == b.what && a.op == b.op && a.dtype == b.dtype && a.count == b.count && a.root == b.root &&
           a.part == b.part;
  }

  void collective(Room& r) {
    std::vector<Work> all;
    for (auto& q : r.queues) {
      all.push_back(std::move(q.front()));
      q.pop_front();
    }
    const Terms terms = all[0].terms;
    std::optional<Error> error = std::exchange(failure_, std::nullopt);
    for (const Work& w : all) {
      if (!error && !same(w.terms, terms))
        error = Error(Code::group_mismatch, "the ranks differ: " + std::to_string(terms.count) + " and " +
                                                std::to_string(w.terms.count) + " elements");
    }
    seen_.push_back(terms);
    if (!error) compute(all, terms);
    for (Work& w : all) answer(std::move(w), error ? Result<int>(*error) : Result<int>(-1));
  }

  bool message(Room& r) {
    for (size_t i = 0; i < r.messages.size(); ++i) {
      for (size_t k = 0; k < r.messages.size(); ++k) {
        Started &s = r.messages[i], &d = r.messages[k];
        if (s.work.terms.what != Collective::send || d.work.terms.what != Collective::recv) continue;
        if (s.work.terms.root != d.rank || (d.work.terms.root != -1 && d.work.terms.root != s.rank)) continue;
        const int from = s.rank;
        const bool fits = s.work.terms.count == d.work.terms.count && s.work.terms.dtype == d.work.terms.dtype;
        if (fits) std::memcpy(d.work.area->bytes.data(), s.work.area->bytes.data(), one(s.work.terms));
        const Error e(Code::group_mismatch, "tensor sizes do not match");
        Work a = std::move(s.work), b = std::move(d.work);
        r.messages.erase(r.messages.begin() + static_cast<long>(std::max(i, k)));
        r.messages.erase(r.messages.begin() + static_cast<long>(std::min(i, k)));
        answer(std::move(a), fits ? Result<int>(-1) : Result<int>(e));
        answer(std::move(b), fits ? Result<int>(from) : Result<int>(e));
        return true;
      }
    }
    return false;
  }

  static size_t one(const Terms& t) { return static_cast<size_t>(t.count * size_of(t.dtype)); }

  static void compute(std::vector<Work>& all, const Terms& t) {
    const size_t bytes = one(t);
    const auto at = [&](size_t rank, size_t part) { return all[rank].area->bytes.data() + part * bytes; };
    const auto root = static_cast<size_t>(std::max(t.root, 0));
    if (bytes == 0) return;
    switch (t.what) {
      case Collective::broadcast:
        for (size_t i = 0; i < all.size(); ++i) {
          if (i != root) std::memcpy(at(i, 0), at(root, 0), bytes);
        }
        break;
      case Collective::all_reduce:
      case Collective::reduce: {
        const auto sum = reduced(all, t, 0);
        for (size_t i = 0; i < all.size(); ++i) {
          if (t.what == Collective::all_reduce || i == root)
            std::memcpy(at(i, 0), sum.data(), bytes);
          else
            std::memset(at(i, 0), 0xEE, bytes);  // means nothing
        }
        break;
      }
      case Collective::all_gather:
        for (size_t i = 0; i < all.size(); ++i) {
          for (size_t k = 0; k < all.size(); ++k) {
            if (i != k) std::memcpy(at(i, k), at(k, k), bytes);
          }
        }
        break;
      case Collective::gather:
        for (size_t k = 0; k < all.size(); ++k) {
          if (k != root) std::memcpy(at(root, k), at(k, 0), bytes);
        }
        break;
      case Collective::scatter: {
        const std::vector<std::byte> parts(all[root].area->bytes.begin(), all[root].area->bytes.end());
        for (size_t k = 0; k < all.size(); ++k) std::memcpy(at(k, 0), parts.data() + k * bytes, bytes);
        break;
      }
      case Collective::reduce_scatter: {
        std::vector<std::vector<std::byte>> sums;
        for (size_t k = 0; k < all.size(); ++k) sums.push_back(reduced(all, t, k));
        for (size_t k = 0; k < all.size(); ++k) std::memcpy(at(k, 0), sums[k].data(), bytes);
        break;
      }
      default:
        break;
    }
  }

  template <class T> static T combined(ReduceOp op, T a, T b) {
    switch (op) {
      case ReduceOp::product:
        return static_cast<T>(a * b);
      case ReduceOp::min:
        return std::min(a, b);
      case ReduceOp::max:
        return std::max(a, b);
      default:
        break;
    }
    if constexpr (std::is_integral_v<T>) {
      if (op == ReduceOp::band) return static_cast<T>(a & b);
      if (op == ReduceOp::bor) return static_cast<T>(a | b);
      if (op == ReduceOp::bxor) return static_cast<T>(a ^ b);
    }
    return static_cast<T>(a + b);
  }

  template <class T>
  static std::vector<std::byte> reduced_as(const std::vector<Work>& all, const Terms& t, size_t part) {
    const auto n = static_cast<size_t>(t.count);
    std::vector<T> sum(n), next(n);
    for (size_t r = 0; r < all.size(); ++r) {
      std::memcpy(next.data(), all[r].area->bytes.data() + part * one(t), one(t));
      for (size_t i = 0; i < n; ++i) sum[i] = r == 0 ? next[i] : combined(t.op, sum[i], next[i]);
    }
    if (t.op == ReduceOp::avg) {
      for (T& v : sum) v = static_cast<T>(v / static_cast<T>(all.size()));
    }
    std::vector<std::byte> out(one(t));
    std::memcpy(out.data(), sum.data(), out.size());
    return out;
  }
  static std::vector<std::byte> reduced(const std::vector<Work>& all, const Terms& t, size_t part) {
    switch (t.dtype) {
      case DType::float32:
        return reduced_as<float>(all, t, part);
      case DType::float64:
        return reduced_as<double>(all, t, part);
      case DType::int64:
        return reduced_as<int64_t>(all, t, part);
      case DType::int32:
        return reduced_as<int32_t>(all, t, part);
      case DType::int16:
        return reduced_as<int16_t>(all, t, part);
      case DType::int8:
        return reduced_as<int8_t>(all, t, part);
      default:  // halves are summed as bits here: tests of values use the others
        return size_of(t.dtype) == 2 ? reduced_as<uint16_t>(all, t, part) : reduced_as<uint8_t>(all, t, part);
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, changed_;
  std::deque<std::unique_ptr<Call>> calls_;
  std::vector<RoomPtr> rooms_;
  std::map<std::string, std::vector<Joining>> joining_;
  std::vector<std::vector<std::pair<std::string, std::string>>> environments_;
  std::vector<Terms> seen_;
  std::optional<Error> failure_;
  bool held_ = false, stop_ = false;
  int open_ = 0, left_ = 0, asked_ = 0, split_ = 0;
  std::thread thread_;
};

/// Its groups may outlive it, and then do nothing.
class FakeCluster final : public Cluster {
 public:
  FakeCluster() { hub_->begin(); }
  ~FakeCluster() override { hub_->end(); }
  FakeHub* operator->() { return hub_.get(); }
  std::string address() const override { return "fake:0"; }
  void join(JoinOptions o, Done<Result<GroupPtr>> done) override { hub_->join(std::move(o), std::move(done)); }

 private:
  const std::shared_ptr<FakeHub> hub_ = std::make_shared<FakeHub>();
};

}  // namespace gradwire::server::cluster
