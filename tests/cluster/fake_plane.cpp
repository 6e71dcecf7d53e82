#include "tests/cluster/fake_plane.h"

#include <cstring>

namespace gradwire::server::cluster {

namespace {

struct FakeArea final : Area {
  explicit FakeArea(size_t n) : memory(n) { bytes = memory; }
  std::vector<std::byte> memory;
};

std::mutex meetings_mutex;
std::map<std::string, std::weak_ptr<FakePlane::Meeting>> meetings;  // by key

std::shared_ptr<FakePlane::Meeting> meeting_of(const std::string& key) {
  const std::lock_guard lock(meetings_mutex);
  auto m = meetings[key].lock();
  if (!m) meetings[key] = m = std::make_shared<FakePlane::Meeting>();
  return m;
}

}  // namespace

struct FakePlane::Meeting {
  std::mutex mutex;
  std::condition_variable changed;
  struct Step {
    std::map<int, std::vector<std::byte>> in;
    int out = 0;
  };
  std::map<uint64_t, Step> steps;
  std::map<uint64_t, std::vector<std::byte>> mail;  // by tag
};

FakePlane::FakePlane(std::shared_ptr<Faults> faults) : faults_(std::move(faults)) {
  {
    const std::lock_guard lock(faults_->mutex);
    ++faults_->planes;
  }
  thread_ = std::thread([this] {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (stop_) return;
      auto f = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      f();
    }
  });
}

FakePlane::~FakePlane() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (meeting_) {
    const std::lock_guard lock(meeting_->mutex);
    meeting_->changed.notify_all();
  }
  thread_.join();
  const std::lock_guard lock(faults_->mutex);
  --faults_->planes;
}

void FakePlane::post(std::function<void()> f) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(f));
  }
  changed_.notify_all();
}

void FakePlane::prepare(int rank, int size, std::chrono::milliseconds, Done<Result<std::string>> done) {
  rank_ = rank, size_ = size;
  const std::lock_guard lock(faults_->mutex);
  if (const auto f = faults_->prepare.find(rank); f != faults_->prepare.end()) {
    if (f->second == "hang") return;
    return done(Error(Code::unavailable, f->second));
  }
  done(std::string("blob of rank ") + std::to_string(rank));
}

void FakePlane::connect(std::vector<std::string> blobs, std::string key, Done<Result<void>> done) {
  const std::lock_guard lock(faults_->mutex);
  if (const auto f = faults_->connect.find(rank_); f != faults_->connect.end())
    return done(Error(Code::unavailable, f->second));
  bool right = key.size() == 32 && static_cast<int>(blobs.size()) == size_;
  for (int r = 0; right && r < size_; ++r) right = blobs[static_cast<size_t>(r)] == "blob of rank " + std::to_string(r);
  if (!right) return done(Error(Code::internal, "wrong blobs"));
  meeting_ = meeting_of(key);
  done(Result<void>());
}

AreaPtr FakePlane::area(size_t bytes) {
  if (bytes > (size_t{1} << 30)) throw Error(Code::memory_limit, "too much");
  return std::make_shared<FakeArea>(bytes);
}

void FakePlane::run(Work w) {
  post([this, w = std::make_shared<Work>(std::move(w))] { collective(*w); });
}
void FakePlane::run(Work w, uint64_t tag) {
  post([this, w = std::make_shared<Work>(std::move(w)), tag] { pairwise(*w, tag); });
}

/// The sum of float32, whatever the collective is.
void FakePlane::collective(Work& w) {
  {
    const std::lock_guard lock(faults_->mutex);
    ++faults_->runs;
    if (faults_->hang) return;
    if (const auto f = faults_->run.find(rank_); f != faults_->run.end()) return w.done(f->second);
  }
  const uint64_t step = calls_++;
  std::unique_lock lock(meeting_->mutex);
  auto& s = meeting_->steps[step];
  const auto bytes = w.area ? w.area->bytes : std::span<std::byte>();
  s.in[rank_].assign(bytes.begin(), bytes.end());
  meeting_->changed.notify_all();
  const auto complete = [&] { return static_cast<int>(s.in.size()) == size_; };
  const auto stopped = [this] {
    const std::lock_guard own(mutex_);
    return stop_;
  };
  meeting_->changed.wait_until(lock, w.deadline, [&] { return complete() || stopped(); });
  if (!complete()) return w.done(Error(Code::deadline_exceeded, "the data plane waited in vain"));
  for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    float sum = 0;
    for (auto& [_, in] : s.in) {
      float x = 0;
      std::memcpy(&x, in.data() + at, 4);
      sum += x;
    }
    std::memcpy(bytes.data() + at, &sum, 4);
  }
  if (++s.out == size_) meeting_->steps.erase(step);
  lock.unlock();
  w.done(-1);
}

void FakePlane::pairwise(Work& w, uint64_t tag) {
  std::unique_lock lock(meeting_->mutex);
  const auto bytes = w.area->bytes;
  if (w.terms.what == Collective::send) {
    meeting_->mail[tag].assign(bytes.begin(), bytes.end());
    meeting_->changed.notify_all();
    lock.unlock();
    return w.done(-1);
  }
  const bool there = meeting_->changed.wait_until(lock, w.deadline, [&] { return meeting_->mail.contains(tag); });
  if (!there) return w.done(Error(Code::deadline_exceeded, "no mail"));
  std::memcpy(bytes.data(), meeting_->mail[tag].data(), bytes.size());
  meeting_->mail.erase(tag);
  lock.unlock();
  w.done(w.terms.root);
}

}  // namespace gradwire::server::cluster
