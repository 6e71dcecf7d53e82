#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/cluster/data_plane.h"
#include "server/cluster/plane/areas.h"
#include "server/cluster/plane/loop.h"
#include "server/cluster/plane/orders.h"
#include "server/cluster/plane/process.h"

namespace gradwire::server::cluster::plane {

/// What a GlooPlane and the loop share. Nothing waits: calls queue orders, the loop answers them.
class Helm final : public Loop::Member {
 public:
  using Then = std::variant<Done<Result<std::string>>, Done<Result<void>>, Done<Result<int>>>;
  explicit Helm(DataPlaneOptions o) : options_(std::move(o)), areas_(std::make_shared<Areas>(options_.memory)) {}

  // Any thread:
  void prepare(int rank, int size, std::chrono::milliseconds timeout, Then);
  void connect(std::vector<std::string> blobs, const std::string& key, Then);
  void run(Work&&, std::optional<uint64_t> tag);
  AreaPtr area(size_t bytes) { return areas_->take(bytes); }
  /// Fails what is pending, and kills the helper at once.
  void end(Error);

  int fd() override;
  short events() override;
  bool turn(int events, Time now) override;
  Time next() override;

 private:
  struct Pending {
    Then then;
    AreaPtr area;  // is not used again before the helper has done with it
    Time deadline;
    const char* what;
  };
  struct Outgoing {
    Order order;
    Fd descriptor;
  };
  /// Answers to give when the lock is let go.
  using Answers = std::vector<std::pair<Then, Result<std::string>>>;

  bool usable(Then&);
  void queue(Order, Then, AreaPtr, Time deadline, const char* what);
  void unmap();
  void flush();
  void end_locked(Error);
  void start();
  void read(Answers&);
  void take(const Answer&, Answers&);
  static void give(Answers);
  static void refuse(Then, Error);

  const DataPlaneOptions options_;
  const std::shared_ptr<Areas> areas_;
  std::mutex mutex_;
  std::optional<Error> over_;  // why; nothing works any longer
  bool prepared_ = false, connecting_ = false, connected_ = false;
  int rank_ = 0, size_ = 0;
  std::chrono::milliseconds timeout_{0};
  Child child_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Pending> pending_;
  std::deque<Outgoing> out_;  // bounded by what may be pending and its areas
};

}  // namespace gradwire::server::cluster::plane
