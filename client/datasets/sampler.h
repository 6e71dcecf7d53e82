#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "client/datasets/dataset.h"

namespace gradwire {

/// 0 … n - 1 in an order that n and the seed alone decide, the same on every machine: std::mt19937_64 seeded with
/// `seed`; for i = n - 1 … 1 in turn, item i changes places with item j ≤ i, where j is the next of the generator's
/// numbers r, without those below 2^64 mod (i + 1), modulo i + 1.
std::vector<int64_t> permutation(int64_t n, uint64_t seed);

/// In which order the items of a data set are taken. One thread at a time.
class Sampler {
 public:
  Sampler() = default;
  Sampler(const Sampler&) = default;
  Sampler& operator=(const Sampler&) = default;
  virtual ~Sampler() = default;
  /// How many indexes a pass has.
  virtual int64_t size() const = 0;
  /// The indexes of the next pass over the data. Those that draw at random draw anew each time, and the same numbers
  /// again from the same seed.
  virtual std::vector<int64_t> indices() = 0;
};

/// 0, 1, 2, …
class SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(int64_t size);
  explicit SequentialSampler(const AnyDataset& set) : SequentialSampler(set.size()) {}
  int64_t size() const override { return size_; }
  std::vector<int64_t> indices() override;

 private:
  int64_t size_;
};

/// All of them in a random order; the first pass is `permutation(size, seed)`. Error: `num_samples should be a positive
/// integer value, but got num_samples=0`.
class RandomSampler final : public Sampler {
 public:
  explicit RandomSampler(int64_t size, uint64_t seed = 0);
  explicit RandomSampler(const AnyDataset& set, uint64_t seed = 0) : RandomSampler(set.size(), seed) {}
  int64_t size() const override { return size_; }
  std::vector<int64_t> indices() override;

 private:
  int64_t size_;
  uint64_t seed_;
};

/// These in a random order.
class SubsetRandomSampler final : public Sampler {
 public:
  explicit SubsetRandomSampler(std::vector<int64_t> indices, uint64_t seed = 0)
      : indices_(std::move(indices)), seed_(seed) {}
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  std::vector<int64_t> indices() override;

 private:
  std::vector<int64_t> indices_;
  uint64_t seed_;
};

/// `num_samples` draws of 0 … weights.size() - 1, each as likely as its share of the weights. Without replacement none
/// comes twice; those of weight zero come last. Errors as of PyTorch's `multinomial`, here when it is made.
class WeightedRandomSampler final : public Sampler {
 public:
  WeightedRandomSampler(std::vector<double> weights, int64_t num_samples, bool replacement = true, uint64_t seed = 0);
  int64_t size() const override { return num_samples_; }
  std::vector<int64_t> indices() override;

 private:
  std::vector<double> weights_;
  int64_t num_samples_;
  bool replacement_;
  uint64_t seed_;
};

/// The indexes of another sampler, `batch_size` at a time; the last batch may be smaller, or is left out. The sampler
/// is borrowed.
class BatchSampler {
 public:
  BatchSampler(Sampler& sampler, int64_t batch_size, bool drop_last);
  /// How many batches a pass has.
  int64_t size() const;
  std::vector<std::vector<int64_t>> batches();

 private:
  Sampler* sampler_;
  int64_t batch_size_;
  bool drop_last_;
};

/// How the shuffled indexes are dealt out to ranks. Both repeat them from the start until every rank has n of them,
/// n = ceil(N / R), or drop the last N mod R.
enum class ShardRule : uint8_t {
  strided,  // rank r takes r, r + R, r + 2R, … (PyTorch as it is today)
  block,    // rank r takes r * n … r * n + n - 1 (PyTorch 0.2)
};

/// What rank `rank` of `replicas` takes of `order`, by the rule alone. Error: `Invalid rank 4, rank should be in the
/// interval [0, 3]`.
std::vector<int64_t> shard(std::span<const int64_t> order, int64_t replicas, int64_t rank,
                           ShardRule rule = ShardRule::strided, bool drop_last = false);

/// Size of a process group, and the own rank in it.
struct World {
  int64_t size = 0, rank = 0;
};
/// That of the default process group, which whoever makes such groups tells by setting the function; it may be called
/// from any thread, and answers nothing while there is no group.
using DefaultWorld = std::optional<World> (*)();
void set_default_world(DefaultWorld);
std::optional<World> default_world();

struct DistributedSamplerOptions {
  std::optional<int64_t> num_replicas{}, rank{};  // left out: as the default process group
  bool shuffle = true;
  uint64_t seed = 0;
  bool drop_last = false;
  ShardRule rule = ShardRule::strided;
};

/// The part of a data set that is for this rank: `shard` of `permutation(N, seed + epoch)`, or of 0 … N - 1 without
/// shuffle. `set_epoch(e)` before each epoch, with the same e on all ranks, gives each epoch its own order; without it
/// they are all alike. Errors: of `shard`; `Default process group has not been initialized, …` where the options leave
/// out what only the group knows.
class DistributedSampler final : public Sampler {
 public:
  using Options = DistributedSamplerOptions;
  explicit DistributedSampler(int64_t size, const Options& = {});
  explicit DistributedSampler(const AnyDataset& set, const Options& options = {})
      : DistributedSampler(set.size(), options) {}
  int64_t size() const override;
  std::vector<int64_t> indices() override;
  void set_epoch(uint64_t epoch) { epoch_ = epoch; }
  int64_t num_replicas() const { return *options_.num_replicas; }
  int64_t rank() const { return *options_.rank; }

 private:
  int64_t count_;
  Options options_;
  uint64_t epoch_ = 0;
};

}  // namespace gradwire
