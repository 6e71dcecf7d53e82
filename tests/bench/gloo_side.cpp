// all_reduce over loopback, W ranks. gloo_side near: data planes with their helpers; gloo_side far: the same as if they
// were on several machines; gloo_side gloo: Gloo alone with its own TCP transport, a thread a rank.

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <semaphore>
#include <string_view>
#include <thread>

#include "server/cluster/data_plane.h"
#include "tests/bench/side.h"

namespace {

using namespace gradwire;
using namespace gradwire::server::cluster;
using bench::Arguments;

constexpr std::chrono::seconds kTimeout{60};

/// W ranks that hold `bytes` of float32 each and sum them, all at once.
struct Ranks {
  virtual ~Ranks() = default;
  virtual float* memory(size_t rank) = 0;
  virtual void round() = 0;
};

class PlaneRanks final : public Ranks {
 public:
  PlaneRanks(size_t size, size_t bytes, bool near) : planes_(size), areas_(size), bytes_(bytes) {
    std::vector<std::string> addresses;
    for (size_t r = 0; r < size; ++r) {
      planes_[r] = make_gloo_plane({});
      std::promise<server::Result<std::string>> address;
      planes_[r]->prepare(static_cast<int>(r), static_cast<int>(size), kTimeout,
                          [&](auto result) { address.set_value(std::move(result)); });
      auto result = address.get_future().get();
      if (!result) throw result.error();
      addresses.push_back(near ? *result : result->substr(0, result->find('@')));
    }
    for (auto& p : planes_) p->connect(addresses, std::string(32, 'k'), [this](auto result) { took(result); });
    wait();
    for (size_t r = 0; r < size; ++r) areas_[r] = planes_[r]->area(bytes);
  }
  float* memory(size_t rank) override { return reinterpret_cast<float*>(areas_[rank]->bytes.data()); }
  void round() override {
    const Terms terms{Collective::all_reduce, ReduceOp::sum, DType::float32, static_cast<int64_t>(bytes_ / 4), -1};
    for (size_t r = 0; r < planes_.size(); ++r) {
      planes_[r]->run(
          {terms, areas_[r], std::chrono::steady_clock::now() + kTimeout, [this](auto result) { took(result); }});
    }
    wait();
  }

 private:
  template <class R> void took(const R& result) {
    if (!result) failed_ = true;
    done_.release();
  }
  void wait() {
    for (size_t r = 0; r < planes_.size(); ++r) done_.acquire();
    if (failed_) throw std::runtime_error("a rank has failed");
  }

  std::counting_semaphore<> done_{0};
  std::atomic<bool> failed_ = false;
  std::vector<std::unique_ptr<DataPlane>> planes_;
  std::vector<AreaPtr> areas_;
  size_t bytes_;
};

class GlooRanks final : public Ranks {
 public:
  GlooRanks(size_t size, size_t bytes) : memory_(size, std::vector<float>(bytes / 4)) {
    for (size_t r = 0; r < size; ++r) go_.push_back(std::make_unique<std::counting_semaphore<>>(0));
    for (size_t r = 0; r < size; ++r) threads_.emplace_back([this, r] { rank(r); });
    wait();
  }
  ~GlooRanks() override {
    over_ = true;
    for (auto& g : go_) g->release();
    for (auto& t : threads_) t.join();
  }
  float* memory(size_t rank) override { return memory_[rank].data(); }
  void round() override {
    for (auto& g : go_) g->release();
    wait();
  }

 private:
  void rank(size_t r) try {
    auto context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(r), static_cast<int>(memory_.size()));
    context->setTimeout(kTimeout);
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice("127.0.0.1");
    context->connectFullMesh(store_, device);
    for (;;) {
      done_.release();
      go_[r]->acquire();
      if (over_) return;
      gloo::AllreduceOptions o(context);
      o.setOutput(memory_[r].data(), memory_[r].size());
      o.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
      gloo::allreduce(o);
    }
  } catch (const std::exception& e) {
    std::printf("error %s\n", e.what());
    std::_Exit(1);
  }
  void wait() {
    for (size_t r = 0; r < memory_.size(); ++r) done_.acquire();
  }

  std::vector<std::vector<float>> memory_;
  gloo::rendezvous::HashStore store_;
  std::vector<std::unique_ptr<std::counting_semaphore<>>> go_;  // one a rank: nobody takes another's turn
  std::counting_semaphore<> done_{0};
  std::atomic<bool> over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view kind = argc == 2 ? argv[1] : "";
  if (kind == "data-plane-helper") return data_plane_helper();
  if (kind != "near" && kind != "far" && kind != "gloo")
    return std::fprintf(stderr, "usage: gloo_side near|far|gloo\n"), 2;
  return bench::serve({{"all_reduce", [&](const Arguments& a) {
                          const size_t size = std::stoull(a.at(0)), bytes = std::stoull(a.at(1));
                          const int times = a.size() > 2 ? std::stoi(a[2]) : 1;
                          std::shared_ptr<Ranks> ranks;
                          if (kind == "gloo")
                            ranks = std::make_shared<GlooRanks>(size, bytes);
                          else
                            ranks = std::make_shared<PlaneRanks>(size, bytes, kind == "near");
                          double sum = 0;
                          for (size_t r = 0; r < size; ++r) {
                            const auto v = bench::numbers(bytes / 4, static_cast<int>(r));
                            std::memcpy(ranks->memory(r), v.data(), bytes);
                          }
                          ranks->round();
                          for (size_t i = 0; i < bytes / 4; ++i) sum += ranks->memory(size - 1)[i];
                          for (size_t r = 0; r < size; ++r) std::memset(ranks->memory(r), 0, bytes);
                          const auto rounds = [ranks, times] {
                            for (int i = 0; i < times; ++i) ranks->round();
                          };
                          return bench::Work{rounds, [sum] { return sum; }};
                        }}});
} catch (const std::exception& e) {
  std::printf("error %s\n", e.what());
  return 1;
}
