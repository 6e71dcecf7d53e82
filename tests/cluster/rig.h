#pragma once

#include <unistd.h>

#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "server/cluster/group.h"
#include "tests/cluster/fake_plane.h"

namespace gradwire::server::cluster {

using Joined = std::future<Result<GroupPtr>>;
using Ran = std::future<Result<int>>;

inline Joined join(Cluster& c, JoinOptions o) {
  auto promise = std::make_shared<std::promise<Result<GroupPtr>>>();
  auto future = promise->get_future();
  c.join(std::move(o), [promise](Result<GroupPtr> r) { promise->set_value(std::move(r)); });
  return future;
}
inline Joined split(const GroupPtr& g, std::vector<int> ranks) {
  auto promise = std::make_shared<std::promise<Result<GroupPtr>>>();
  auto future = promise->get_future();
  g->split(std::move(ranks), [promise](Result<GroupPtr> r) { promise->set_value(std::move(r)); });
  return future;
}

inline Terms terms(Collective what, int64_t count = 4, DType dtype = DType::float32, ReduceOp op = ReduceOp::sum,
                   int root = 0) {
  return {what, op, dtype, count, root};
}

/// Begins a collective on an area of its own, of `value`s; the sum is in `area` afterwards. A group that has broken
/// gives none, and that is how it ends.
struct Running {
  AreaPtr area;
  Ran done;
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  float first() const { return *reinterpret_cast<const float*>(area->bytes.data()); }
};
inline Running start(const GroupPtr& g, Terms t, float value = 1,
                     std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  Running r;
  const size_t size = static_cast<size_t>(std::max<int64_t>(t.count, 1) * std::max<int64_t>(size_of(t.dtype), 4) *
                                          std::max(parts_of(t, g->rank(), g->size()), 1));
  auto promise = std::make_shared<std::promise<Result<int>>>();
  r.done = promise->get_future();
  try {
    r.area = g->area(size);
  } catch (const Error& e) {
    promise->set_value(e);
    return r;
  }
  std::fill_n(reinterpret_cast<float*>(r.area->bytes.data()), size / 4, value);
  Work w;
  w.terms = t, w.area = r.area, w.deadline = std::chrono::steady_clock::now() + timeout;
  w.done = [promise](Result<int> got) { promise->set_value(std::move(got)); };
  g->start(std::move(w));
  return r;
}

/// Servers of one process on loopback, whose data planes are fakes.
struct Servers {
  explicit Servers(int n, const std::function<void(Cluster::Options&, int)>& change = {}) {
    for (int i = 0; i < n; ++i) {
      Cluster::Options o;
      o.peer = "127.0.0.1:0";
      o.make_plane = [f = faults](const std::string& backend, const DataPlaneOptions&) {
        return backend == "gloo" ? std::make_unique<FakePlane>(f) : nullptr;
      };
      if (change) change(o, i);
      all.push_back(make_cluster(std::move(o)));
    }
  }
  Cluster& operator[](int i) { return *all[static_cast<size_t>(i)]; }
  /// tcp:// of the first server.
  std::string url() { return "tcp://" + all[0]->address(); }
  JoinOptions options(int rank, int size) {
    JoinOptions o;
    o.init_method = url(), o.rank = rank, o.world_size = size;
    return o;
  }
  /// Rank r on server r.
  std::vector<GroupPtr> group(std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
    const int n = static_cast<int>(all.size());
    std::vector<Joined> joined;
    for (int r = 0; r < n; ++r) {
      auto o = options(r, n);
      o.timeout = timeout;
      joined.push_back(join(*all[static_cast<size_t>(r)], o));
    }
    std::vector<GroupPtr> out;
    for (auto& j : joined) {
      auto r = j.get();
      if (!r) throw r.error();
      out.push_back(*r);
    }
    return out;
  }
  std::shared_ptr<Faults> faults = std::make_shared<Faults>();
  std::vector<std::unique_ptr<Cluster>> all;
};

/// A directory that goes with the test.
struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "gradwire-cluster-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("no temporary directory");
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::filesystem::path path;
};

inline double seconds_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

}  // namespace gradwire::server::cluster
