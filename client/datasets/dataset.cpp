#include "client/datasets/dataset.h"

#include <algorithm>

#include "client/datasets/sampler.h"
#include "client/errors.h"

namespace gradwire::client {

namespace {

Where where(const std::source_location& at) { return {at.file_name(), at.line()}; }

[[noreturn]] void raise_no_tensors(const std::source_location& at) {
  raise(Error(Code::index_out_of_range, "this data set was made without tensors").at(where(at)));
}

}  // namespace

/// Data sets of data sets are flattened when they are made: whatever was joined and chosen, an item is a row of one of
/// `parts`, found without recursion.
class Rows {
 public:
  struct Part {
    std::vector<Tensor> tensors;
    int64_t end;  // rows of this part and of those before it
  };

  int64_t size() const { return all_ ? rows() : static_cast<int64_t>(chosen_.size()); }
  int64_t rows() const { return parts_.back().end; }
  /// The row, counted over all parts, of the item at an index.
  int64_t row(int64_t index, const std::source_location& at) const {
    const int64_t n = size(), from_start = index < 0 ? index + n : index;
    if (from_start < 0)
      raise(Error(Code::index_out_of_range, "absolute value of index should not exceed dataset length: index " +
                                                std::to_string(index) + ", length " + std::to_string(n))
                .at(where(at)));
    if (from_start >= n)
      raise(Error(Code::index_out_of_range,
                  "index " + std::to_string(index) + " is out of bounds for dimension 0 with size " + std::to_string(n))
                .at(where(at)));
    return all_ ? from_start : chosen_[static_cast<size_t>(from_start)];
  }
  size_t part_of(int64_t row) const {
    const auto after = [](int64_t r, const Part& p) { return r < p.end; };
    return static_cast<size_t>(std::upper_bound(parts_.begin(), parts_.end(), row, after) - parts_.begin());
  }
  int64_t start(size_t part) const { return part ? parts_[part - 1].end : 0; }

  std::vector<Part> parts_;  // at least one
  bool all_ = true;          // the items are the rows in their order; else these:
  std::vector<int64_t> chosen_;
};

RowsPtr make_rows(std::vector<Tensor> tensors, const std::source_location& at) {
  const int64_t n = tensors.front().size(0, at);
  for (const Tensor& t : tensors)
    if (t.size(0, at) != n)
      raise(Error(Code::shape_mismatch, "Size mismatch between tensors", "TensorDataset").at(where(at)));
  auto rows = std::make_shared<Rows>();
  rows->parts_.push_back({std::move(tensors), n});
  return rows;
}

RowsPtr concat_rows(std::span<const RowsPtr> sets, std::vector<int64_t>& ends, const std::source_location& at) {
  if (sets.empty())
    raise(Error(Code::bad_argument, "datasets should not be an empty iterable", "ConcatDataset").at(where(at)));
  auto rows = std::make_shared<Rows>();
  ends.clear();
  for (const RowsPtr& set : sets) {
    const int64_t before = rows->parts_.empty() ? 0 : rows->rows();
    const int64_t items = count(set.get());
    ends.push_back((ends.empty() ? 0 : ends.back()) + items);
    if (!set) continue;
    if (rows->all_ && !set->all_) {
      rows->all_ = false;
      for (int64_t r = 0; r < before; ++r) rows->chosen_.push_back(r);
    }
    if (!rows->all_)
      for (int64_t i = 0; i < items; ++i) rows->chosen_.push_back(before + set->row(i, at));
    for (const Rows::Part& p : set->parts_) rows->parts_.push_back({p.tensors, before + p.end});
  }
  if (rows->parts_.empty()) return nullptr;
  return rows;
}

RowsPtr subset_rows(const RowsPtr& set, std::span<const int64_t> indices, const std::source_location& at) {
  if (!set) {
    if (!indices.empty()) raise_no_tensors(at);
    return nullptr;
  }
  auto rows = std::make_shared<Rows>();
  rows->all_ = false;
  rows->chosen_.reserve(indices.size());
  for (const int64_t i : indices) rows->chosen_.push_back(set->row(i, at));
  rows->parts_ = set->parts_;
  return rows;
}

int64_t count(const Rows* rows) { return rows ? rows->size() : 0; }

namespace {

Tensor upload(const Tensor& beside, const std::vector<int64_t>& indices, const std::source_location& at) {
  return from_span(beside.maker(), indices, {static_cast<int64_t>(indices.size())}, {}, at);
}

}  // namespace

void get_item(const Rows* rows, int64_t index, std::span<Tensor> out, const std::source_location& at) {
  if (!rows) raise_no_tensors(at);
  const int64_t row = rows->row(index, at);
  const size_t part = rows->part_of(row);
  for (size_t k = 0; k < out.size(); ++k) out[k] = rows->parts_[part].tensors[k].select(0, row - rows->start(part), at);
}

void get_batch(const Rows* rows, std::span<const int64_t> indices, std::span<Tensor> out,
               const std::source_location& at) {
  if (!rows) raise_no_tensors(at);
  // What each part gives, in the batch's order; `place` is where the batch's items then stand when the parts follow
  // each other.
  std::vector<std::vector<int64_t>> of_part(rows->parts_.size());
  std::vector<std::pair<size_t, int64_t>> from;
  from.reserve(indices.size());
  for (const int64_t i : indices) {
    const int64_t row = rows->row(i, at);
    const size_t part = rows->part_of(row);
    from.emplace_back(part, static_cast<int64_t>(of_part[part].size()));
    of_part[part].push_back(row - rows->start(part));
  }
  std::vector<size_t> used;
  std::vector<int64_t> first(of_part.size());
  int64_t before = 0;
  for (size_t p = 0; p < of_part.size(); ++p) {
    first[p] = before;
    before += static_cast<int64_t>(of_part[p].size());
    if (!of_part[p].empty()) used.push_back(p);
  }
  if (used.empty()) used.push_back(0);
  std::vector<int64_t> place;
  place.reserve(indices.size());
  for (const auto& [part, nth] : from) place.push_back(first[part] + nth);

  std::vector<Tensor> chosen;
  for (const size_t p : used) chosen.push_back(upload(rows->parts_[p].tensors[0], of_part[p], at));
  Tensor order;
  if (!std::ranges::is_sorted(place)) order = upload(rows->parts_[used[0]].tensors[0], place, at);
  for (size_t k = 0; k < out.size(); ++k) {
    std::vector<Tensor> pieces;
    for (size_t u = 0; u < used.size(); ++u)
      pieces.push_back(rows->parts_[used[u]].tensors[k].index_select(0, chosen[u], at));
    out[k] = pieces.size() == 1 ? pieces[0] : cat(pieces, 0, at);
    if (order) out[k] = out[k].index_select(0, order, at);
  }
}

std::vector<std::vector<int64_t>> split_at_random(int64_t size, std::span<const int64_t> lengths, uint64_t seed,
                                                  const std::source_location& at) {
  int64_t left = size;
  bool fits = true;
  for (const int64_t n : lengths) {
    fits = fits && n >= 0 && n <= left;
    if (fits) left -= n;
  }
  if (!fits || left != 0)
    raise(Error(Code::bad_argument, "Sum of input lengths does not equal the length of the input dataset!",
                "random_split")
              .at(where(at)));
  const std::vector<int64_t> order = permutation(size, seed);
  std::vector<std::vector<int64_t>> parts;
  auto next = order.begin();
  for (const int64_t n : lengths) {
    parts.emplace_back(next, next + n);
    next += n;
  }
  return parts;
}

}  // namespace gradwire::client
