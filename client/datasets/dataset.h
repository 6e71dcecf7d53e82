#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <ranges>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include "client/tensor.h"

namespace gradwire {

namespace client {

/// What a data set is: tensors on the server, and which of their rows are its items, in which order. Never changes.
class Rows;
using RowsPtr = std::shared_ptr<const Rows>;

RowsPtr make_rows(std::vector<Tensor> tensors, const std::source_location& at);
/// `ends` becomes the sizes of the parts, summed up.
RowsPtr concat_rows(std::span<const RowsPtr> parts, std::vector<int64_t>& ends, const std::source_location& at);
RowsPtr subset_rows(const RowsPtr&, std::span<const int64_t> indices, const std::source_location& at);
int64_t count(const Rows*);
void get_item(const Rows*, int64_t index, std::span<Tensor> out, const std::source_location& at);
void get_batch(const Rows*, std::span<const int64_t> indices, std::span<Tensor> out, const std::source_location& at);
std::vector<std::vector<int64_t>> split_at_random(int64_t size, std::span<const int64_t> lengths, uint64_t seed,
                                                  const std::source_location& at);

inline Tensor as_tensor(const Tensor& t, const std::source_location&) { return t; }
template <std::ranges::contiguous_range R> Tensor as_tensor(const R& data, const std::source_location& at) {
  return from_span(data, {}, at);
}

/// An index, and the line that wrote it.
struct ItemIndex {
  template <std::integral I>
  ItemIndex(I i, std::source_location line = std::source_location::current())
      : index(static_cast<int64_t>(i)), at(line) {}
  int64_t index;
  std::source_location at;
};

}  // namespace client

/// A data set whose items have any number of tensors: what a sampler needs of it.
class AnyDataset {
 public:
  AnyDataset() = default;  // no items
  int64_t size() const { return client::count(rows_.get()); }
  const client::RowsPtr& rows() const { return rows_; }

 protected:
  explicit AnyDataset(client::RowsPtr rows) : rows_(std::move(rows)) {}

 private:
  client::RowsPtr rows_;
};

/// A data set whose items are N tensors each, as `auto [image, label] = set[7]`. The values stay on the server; here
/// are handles and the list of rows, so that a copy is cheap and a batch costs the upload of its indexes and nothing
/// else. Indexes below zero count from the end. Errors: index_out_of_range, and those of the operators used.
template <size_t N> class Dataset : public AnyDataset {
 public:
  using Item = std::array<Tensor, N>;

  Dataset() = default;
  explicit Dataset(client::RowsPtr rows) : AnyDataset(std::move(rows)) {}

  /// One item: views of the data set's tensors, without the dimension of the rows.
  Item operator[](client::ItemIndex i) const {
    Item out;
    client::get_item(rows().get(), i.index, out, i.at);
    return out;
  }
  /// These items, stacked: new tensors of as many rows as there are indexes.
  Item batch(std::span<const int64_t> indices, std::source_location at = std::source_location::current()) const {
    Item out;
    client::get_batch(rows().get(), indices, out, at);
    return out;
  }
};

/// Rows of tensors: item i is row i of each. Takes tensors, and vectors, spans, … of numbers, which become tensors of
/// one dimension in the default session. Asks for the shapes, so it waits. Error: `Size mismatch between tensors`.
///
///   TensorDataset train(images, labels);   // N = 2
template <size_t N> class TensorDataset : public Dataset<N> {
 public:
  template <class... T>
  requires(sizeof...(T) == N && N > 0) explicit TensorDataset(const T&... tensors)
      : Dataset<N>(client::make_rows({client::as_tensor(tensors, {})...}, {})) {}
};
template <class... T> explicit TensorDataset(const T&...) -> TensorDataset<sizeof...(T)>;

/// One data set after the other; empty ones too. `ConcatDataset({a, b})` or `a + b`. Error: `datasets should not be an
/// empty iterable`.
template <size_t N> class ConcatDataset : public Dataset<N> {
 public:
  ConcatDataset(std::initializer_list<Dataset<N>> sets, std::source_location at = std::source_location::current())
      : ConcatDataset(std::vector<Dataset<N>>(sets), at) {}
  explicit ConcatDataset(const std::vector<Dataset<N>>& sets, std::source_location at = std::source_location::current())
      : ConcatDataset(sets, {}, at) {}
  /// The index after the last item of each set: sizes 5, 0, 5 make 5, 5, 10.
  const std::vector<int64_t>& cumulative_sizes() const { return ends_; }

 private:
  ConcatDataset(const std::vector<Dataset<N>>& sets, std::vector<int64_t> ends, const std::source_location& at)
      : Dataset<N>(joined(sets, ends, at)), ends_(std::move(ends)) {}
  static client::RowsPtr joined(const std::vector<Dataset<N>>& sets, std::vector<int64_t>& ends,
                                const std::source_location& at) {
    std::vector<client::RowsPtr> parts;
    for (const auto& s : sets) parts.push_back(s.rows());
    return client::concat_rows(parts, ends, at);
  }
  std::vector<int64_t> ends_;
};

template <size_t N> ConcatDataset<N> operator+(const Dataset<N>& a, const Dataset<N>& b) {
  return ConcatDataset<N>(std::vector<Dataset<N>>{a, b});
}

/// The items of another data set at these indexes.
template <size_t N> class Subset : public Dataset<N> {
 public:
  Subset() = default;
  Subset(const Dataset<N>& set, std::span<const int64_t> indices,
         std::source_location at = std::source_location::current())
      : Dataset<N>(client::subset_rows(set.rows(), indices, at)) {}
  Subset(const Dataset<N>& set, std::initializer_list<int64_t> indices,
         std::source_location at = std::source_location::current())
      : Subset(set, std::span(indices.begin(), indices.size()), at) {}
};

/// Parts of these sizes, whose items are drawn by `permutation(set.size(), seed)`:
///
///   auto [train, test] = random_split(set, {50, 10}, 1);
///
/// Error: `Sum of input lengths does not equal the length of the input dataset!`.
template <size_t N>
std::vector<Subset<N>> random_split(const Dataset<N>& set, const std::vector<int64_t>& lengths, uint64_t seed = 0,
                                    std::source_location at = std::source_location::current()) {
  std::vector<Subset<N>> out;
  for (const auto& indices : client::split_at_random(set.size(), lengths, seed, at)) out.emplace_back(set, indices, at);
  return out;
}
template <size_t N, size_t K>
std::array<Subset<N>, K> random_split(const Dataset<N>& set, const int64_t (&lengths)[K], uint64_t seed = 0,
                                      std::source_location at = std::source_location::current()) {
  const auto parts = client::split_at_random(set.size(), lengths, seed, at);
  std::array<Subset<N>, K> out;
  for (size_t k = 0; k < K; ++k) out[k] = Subset<N>(set, parts[k], at);
  return out;
}

}  // namespace gradwire
