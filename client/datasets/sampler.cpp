#include "client/datasets/sampler.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <random>

#include "client/errors.h"

namespace gradwire {
namespace {

// The standard fixes what std::mt19937_64 gives, but neither std::shuffle nor the distributions.
using Generator = std::mt19937_64;

/// Below n, each as likely as the others.
uint64_t below(Generator& g, uint64_t n) {
  const uint64_t uneven = (0 - n) % n;  // 2^64 mod n: as many numbers would come once too often
  uint64_t r = g();
  while (r < uneven) r = g();
  return r % n;
}

/// In [0, 1), all 53 bits random.
double unit(Generator& g) { return static_cast<double>(g() >> 11) * 0x1p-53; }

void shuffle(std::vector<int64_t>& v, Generator& g) {
  for (size_t i = v.size(); i-- > 1;) std::swap(v[i], v[below(g, i + 1)]);
}

std::vector<int64_t> counted(int64_t n) {
  std::vector<int64_t> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), int64_t{0});
  return v;
}

[[noreturn]] void refuse(const char* who, const std::string& text) { raise(Error(Code::bad_argument, text, who)); }

void check_positive(const char* who, const char* what, int64_t n) {
  if (n <= 0)
    refuse(who, std::string(what) + " should be a positive integer value, but got " + what + "=" + std::to_string(n));
}

void check_size(const char* who, int64_t n) {
  if (n < 0) refuse(who, "the size of a data set should not be negative, but got " + std::to_string(n));
}

}  // namespace

std::vector<int64_t> permutation(int64_t n, uint64_t seed) {
  check_size("permutation", n);
  std::vector<int64_t> v = counted(n);
  Generator g(seed);
  shuffle(v, g);
  return v;
}

SequentialSampler::SequentialSampler(int64_t size) : size_(size) { check_size("SequentialSampler", size); }
std::vector<int64_t> SequentialSampler::indices() { return counted(size_); }

RandomSampler::RandomSampler(int64_t size, uint64_t seed) : size_(size), seed_(seed) {
  check_positive("RandomSampler", "num_samples", size);
}

// The generator's next number is the next pass's seed: a sampler of 8 bytes, and any pass can be told from its seed.
std::vector<int64_t> RandomSampler::indices() {
  std::vector<int64_t> v = counted(size_);
  Generator g(seed_);
  shuffle(v, g);
  seed_ = g();
  return v;
}

std::vector<int64_t> SubsetRandomSampler::indices() {
  std::vector<int64_t> v = indices_;
  Generator g(seed_);
  shuffle(v, g);
  seed_ = g();
  return v;
}

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, int64_t num_samples, bool replacement,
                                             uint64_t seed)
    : weights_(std::move(weights)), num_samples_(num_samples), replacement_(replacement), seed_(seed) {
  constexpr const char* who = "WeightedRandomSampler";
  check_positive(who, "num_samples", num_samples);
  double sum = 0;
  for (const double w : weights_) {
    if (!std::isfinite(w))
      refuse(who, "invalid multinomial distribution (encountering probability entry = infinity or NaN)");
    if (w < 0) refuse(who, "invalid multinomial distribution (encountering probability entry < 0)");
    sum += w;
  }
  if (!(sum > 0)) refuse(who, "invalid multinomial distribution (sum of probabilities <= 0)");
  if (!std::isfinite(sum)) refuse(who, "invalid multinomial distribution (sum of probabilities is infinite)");
  if (!replacement && num_samples > static_cast<int64_t>(weights_.size()))
    refuse(who, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
}

std::vector<int64_t> WeightedRandomSampler::indices() {
  Generator g(seed_);
  std::vector<int64_t> v;
  if (replacement_) {
    std::vector<double> ends(weights_.size());
    std::partial_sum(weights_.begin(), weights_.end(), ends.begin());
    v.reserve(static_cast<size_t>(num_samples_));
    for (int64_t k = 0; k < num_samples_; ++k) {
      // The first whose end is above it; rounding may make it the sum itself, which belongs to the last with a weight.
      const auto at = std::upper_bound(ends.begin(), ends.end(), unit(g) * ends.back());
      v.push_back((at == ends.end() ? std::lower_bound(ends.begin(), ends.end(), ends.back()) : at) - ends.begin());
    }
  } else {
    // A waiting time of rate w for each, and the shortest win (Efraimidis and Spirakis, 2006).
    std::vector<double> wait;
    for (const double w : weights_) wait.push_back(-std::log1p(-unit(g)) / w);
    for (size_t k = 0; k < wait.size(); ++k)
      if (weights_[k] == 0) wait[k] = INFINITY;
    v = counted(static_cast<int64_t>(wait.size()));
    std::ranges::stable_sort(v, {}, [&](int64_t k) { return wait[static_cast<size_t>(k)]; });
    v.resize(static_cast<size_t>(num_samples_));
  }
  seed_ = g();
  return v;
}

BatchSampler::BatchSampler(Sampler& sampler, int64_t batch_size, bool drop_last)
    : sampler_(&sampler), batch_size_(batch_size), drop_last_(drop_last) {
  check_positive("BatchSampler", "batch_size", batch_size);
}

int64_t BatchSampler::size() const {
  const int64_t n = sampler_->size();
  return n / batch_size_ + (!drop_last_ && n % batch_size_ ? 1 : 0);
}

std::vector<std::vector<int64_t>> BatchSampler::batches() {
  const std::vector<int64_t> all = sampler_->indices();
  std::vector<std::vector<int64_t>> out;
  const size_t step = static_cast<size_t>(batch_size_);
  for (size_t i = 0; i < all.size();) {
    const size_t n = std::min(step, all.size() - i);
    if (n < step && drop_last_) break;
    out.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(i), all.begin() + static_cast<std::ptrdiff_t>(i + n));
    i += n;
  }
  return out;
}

namespace {

int64_t shard_size(int64_t n, int64_t replicas, bool drop_last) {
  return n / replicas + (!drop_last && n % replicas ? 1 : 0);
}

void check_rank(const char* who, int64_t replicas, int64_t rank) {
  if (rank < 0 || rank >= replicas)
    refuse(who, "Invalid rank " + std::to_string(rank) + ", rank should be in the interval [0, " +
                    std::to_string(replicas - 1) + "]");
}

std::atomic<DefaultWorld> world{nullptr};

}  // namespace

std::vector<int64_t> shard(std::span<const int64_t> order, int64_t replicas, int64_t rank, ShardRule rule,
                           bool drop_last) {
  check_rank("shard", replicas, rank);
  const int64_t count = static_cast<int64_t>(order.size()), n = shard_size(count, replicas, drop_last);
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k) {
    const int64_t place = rule == ShardRule::block ? rank * n + k : rank + k * replicas;
    out.push_back(order[static_cast<size_t>(place % count)]);  // after the last comes the first again
  }
  return out;
}

void set_default_world(DefaultWorld f) { world = f; }
std::optional<World> default_world() {
  const DefaultWorld f = world;
  return f ? f() : std::nullopt;
}

DistributedSampler::DistributedSampler(int64_t size, const Options& options) : count_(size), options_(options) {
  constexpr const char* who = "DistributedSampler";
  check_size(who, size);
  if (!options_.num_replicas || !options_.rank) {
    const std::optional<World> w = default_world();
    if (!w) refuse(who, "Default process group has not been initialized, please make sure to call init_process_group.");
    if (!options_.num_replicas) options_.num_replicas = w->size;
    if (!options_.rank) options_.rank = w->rank;
  }
  check_rank(who, num_replicas(), rank());
}

int64_t DistributedSampler::size() const { return shard_size(count_, num_replicas(), options_.drop_last); }

std::vector<int64_t> DistributedSampler::indices() {
  const std::vector<int64_t> order = options_.shuffle ? permutation(count_, options_.seed + epoch_) : counted(count_);
  return shard(order, num_replicas(), rank(), options_.rule, options_.drop_last);
}

}  // namespace gradwire
