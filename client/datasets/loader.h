#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <source_location>
#include <utility>
#include <vector>

#include "client/datasets/dataset.h"
#include "client/datasets/sampler.h"

namespace gradwire {

struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  uint64_t seed = 0;           // of shuffle
  Sampler* sampler = nullptr;  // instead of shuffle; borrowed, and may be changed between epochs
  bool drop_last = false;      // leave out a last batch that is smaller
  int64_t num_workers = 0;     // accepted; a batch is made on the server, which no worker here could hasten
  bool pin_memory = false;     // accepted; there is no memory here to pin
};

namespace client {

/// The loader's own sampler, or that of the options once they are checked.
std::shared_ptr<Sampler> checked_sampler(const AnyDataset&, const DataLoaderOptions&, const std::source_location& at);

}  // namespace client

/// The batches of a data set, one epoch each time it is gone through:
///
///   DataLoader loader(train, {.batch_size = 50, .sampler = &sampler});
///   for (int epoch = 0; epoch < 10; ++epoch) {
///     sampler.set_epoch(epoch);
///     for (auto [images, labels] : loader) …
///   }
///
/// A batch is made on the server, in the order of the session's calls: what travels is its indexes, with the calls
/// around it, and nothing waits (over 8,192 indexes a batch they travel at once, which waits). Errors: those of
/// PyTorch for the options; index_out_of_range for an index of the sampler that is none of the data set.
template <size_t N> class DataLoader {
 public:
  using Batch = typename Dataset<N>::Item;

  explicit DataLoader(Dataset<N> set, const DataLoaderOptions& options = {},
                      std::source_location at = std::source_location::current())
      : set_(std::move(set)),
        sampler_(client::checked_sampler(set_, options, at)),
        batches_(*sampler_, options.batch_size, options.drop_last),
        at_(at) {}

  /// How many batches an epoch has.
  int64_t size() const { return batches_.size(); }
  const Dataset<N>& dataset() const { return set_; }

  /// Goes once through the batches of one epoch; keeps what it needs, so it may outlive the loader.
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    Iterator(Dataset<N> set, std::vector<std::vector<int64_t>> batches, std::source_location at)
        : set_(std::move(set)), batches_(std::move(batches)), at_(at) {}
    Batch operator*() const { return set_.batch(batches_[next_], at_); }
    Iterator& operator++() {
      ++next_;
      return *this;
    }
    void operator++(int) { ++next_; }
    bool operator==(std::default_sentinel_t) const { return next_ == batches_.size(); }

   private:
    Dataset<N> set_;
    std::vector<std::vector<int64_t>> batches_;
    size_t next_ = 0;
    std::source_location at_;
  };
  /// Draws the order of an epoch.
  Iterator begin() { return Iterator(set_, batches_.batches(), at_); }
  std::default_sentinel_t end() const { return {}; }

 private:
  Dataset<N> set_;
  std::shared_ptr<Sampler> sampler_;
  BatchSampler batches_;
  std::source_location at_;
};
template <size_t N> explicit DataLoader(const Dataset<N>&) -> DataLoader<N>;
template <size_t N> explicit DataLoader(const Dataset<N>&, const DataLoaderOptions&) -> DataLoader<N>;

}  // namespace gradwire
