#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/cluster/data_plane.h"

namespace gradwire::server::cluster {

/// A data plane within the test's process: ranks meet by the key in a table, and bytes are added up or copied there.
/// What a test wants to go wrong, it says in `Faults`.
struct Faults {
  std::mutex mutex;
  std::map<int, std::string> prepare, connect;  // by rank: how it fails
  std::map<int, Error> run;
  bool hang = false;         // collectives are swallowed
  int runs = 0, planes = 0;  // how many have begun; how many live now
};

class FakePlane final : public DataPlane {
 public:
  explicit FakePlane(std::shared_ptr<Faults> faults);
  ~FakePlane() override;
  void prepare(int rank, int size, std::chrono::milliseconds, Done<Result<std::string>>) override;
  void connect(std::vector<std::string> blobs, std::string key, Done<Result<void>>) override;
  AreaPtr area(size_t bytes) override;
  void run(Work) override;
  void run(Work, uint64_t tag) override;

  struct Meeting;  // what the ranks of one group share

 private:
  void post(std::function<void()>);
  void collective(Work&);
  void pairwise(Work&, uint64_t tag);

  std::shared_ptr<Faults> faults_;
  std::shared_ptr<Meeting> meeting_;
  int rank_ = 0, size_ = 0;
  uint64_t calls_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace gradwire::server::cluster
