#include "client/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "client/core.h"
#include "client/errors.h"
#include "client/link.h"

namespace gradwire {
namespace {

Where where(const std::source_location& at) { return {at.file_name(), at.line()}; }

/// The number of elements of a shape; throws for one that no tensor can have.
int64_t checked_numel(std::span<const int64_t> shape, const std::source_location& at) {
  if (shape.size() > static_cast<size_t>(kMaxDims))
    raise(Error(Code::bad_argument, "a tensor has at most " + std::to_string(kMaxDims) + " dimensions").at(where(at)));
  int64_t n = 1;
  for (const int64_t d : shape) {
    if (d < 0)
      raise(Error(Code::bad_argument,
                  "Trying to create tensor with negative dimension " + std::to_string(d) + ": " + to_string(shape))
                .at(where(at)));
    if (d > kMaxDim || (d > 0 && n > kMaxNumel / d))
      raise(Error(Code::bad_argument, "a tensor of size " + to_string(shape) + " is too large").at(where(at)));
    n *= d;
  }
  return n;
}

/// Takes the numbers of a nested list, row-major. Recursion is bounded by the program's own braces.
struct Flat {
  std::vector<int64_t> shape;
  std::vector<Scalar> numbers;
  std::source_location at;

  void shape_of(const Literal& l) {
    for (const Literal* p = &l; !p->is_number(); p = &p->list()[0]) {
      shape.push_back(static_cast<int64_t>(p->list().size()));
      if (p->list().empty()) break;
    }
    checked_numel(shape, at);
  }
  void take(const Literal& l, size_t dim) {
    if (dim == shape.size() || l.is_number()) {
      if (dim != shape.size() || !l.is_number())
        ragged(dim, l.is_number() ? 0 : static_cast<int64_t>(l.list().size()), l.is_number());
      numbers.push_back(l.number());
      return;
    }
    if (static_cast<int64_t>(l.list().size()) != shape[dim]) ragged(dim, static_cast<int64_t>(l.list().size()), false);
    for (const Literal& i : l.list()) take(i, dim + 1);
  }
  [[noreturn]] void ragged(size_t dim, int64_t got, bool number) const {
    if (number || dim == shape.size())
      raise(Error(Code::bad_tensor, "expected a nested list of one depth at dim " + std::to_string(dim)).at(where(at)));
    raise(Error(Code::bad_tensor, "expected sequence of length " + std::to_string(shape[dim]) + " at dim " +
                                      std::to_string(dim) + " (got " + std::to_string(got) + ")")
              .at(where(at)));
  }
};

/// Whether an integer fits into an integer dtype.
bool fits(int64_t v, DType t) {
  switch (t) {
    case DType::uint8:
      return v >= 0 && v <= 255;
    case DType::int8:
      return v >= -128 && v <= 127;
    case DType::int16:
      return v >= -32768 && v <= 32767;
    case DType::int32:
      return v >= std::numeric_limits<int32_t>::min() && v <= std::numeric_limits<int32_t>::max();
    default:
      return true;
  }
}

}  // namespace

Session& Tensor::maker() const {
  if (!node_) raise(Error(Code::bad_argument, "this Tensor stands for no tensor"));
  return *node_->session;
}

TensorInfo Tensor::info() const {
  const auto arrival = std::make_shared<client::InfoArrival>();
  fetch(arrival, FetchKind::info);
  arrival->wait({});
  if (!arrival->present()) raise(Error(Code::no_grad, "the tensor has no gradient"));
  return arrival->info();
}

TensorInfo Tensor::facts() const {
  maker();
  client::Core& core = client::Core::of(*node_);
  if (part_ == Part::grad) return info();
  if (const auto known = core.known(*node_)) return *known;
  TensorInfo i = info();
  core.learn(*node_, i);
  return i;
}

std::string Tensor::type() const {
  const TensorInfo i = facts();
  return std::string(i.device.starts_with("cuda") ? "torch.cuda." : "torch.") + row(i.dtype).torch + "Tensor";
}

int64_t Tensor::numel() const {
  int64_t n = 1;
  for (const int64_t d : facts().shape) n *= d;
  return n;
}

int64_t Tensor::size(int64_t dim, std::source_location at) const {
  const Shape s = facts().shape;
  const auto n = static_cast<int64_t>(s.size());
  if (dim < -n || dim >= n)
    raise(Error(Code::index_out_of_range,
                "Dimension out of range (expected to be in range of [" + std::to_string(-std::max<int64_t>(n, 1)) +
                    ", " + std::to_string(std::max<int64_t>(n, 1) - 1) + "], but got " + std::to_string(dim) + ")")
              .at(where(at)));
  return s[static_cast<size_t>(dim < 0 ? dim + n : dim)];
}

Tensor Tensor::grad() const {
  maker();
  Tensor g(*this);
  g.part_ = Part::grad;
  return g;
}

bool Tensor::has_grad() const {
  const auto arrival = std::make_shared<client::InfoArrival>();
  grad().fetch(arrival, FetchKind::info);
  arrival->wait({});
  return arrival->present();
}

Future<std::optional<TensorInfo>> Tensor::async_info() const {
  const auto arrival = std::make_shared<client::InfoArrival>();
  fetch(arrival, FetchKind::info);
  return {arrival, [](client::Arrival& a) {
            return a.present() ? std::optional<TensorInfo>(a.info()) : std::optional<TensorInfo>();
          }};
}

Future<std::vector<std::byte>> Tensor::async_bytes() const {
  const auto arrival = std::make_shared<client::BytesArrival>();
  fetch(arrival, FetchKind::value);
  return {arrival, [](client::Arrival& a) {
            if (!a.present()) raise(Error(Code::no_grad, "the tensor has no gradient"));
            return std::move(static_cast<client::BytesArrival&>(a).bytes);
          }};
}

void Tensor::fetch(std::shared_ptr<client::Arrival> arrival, FetchKind kind) const {
  maker();
  client::Core::of(*node_).fetch(*node_, part_, kind, arrival);
}

namespace {

/// Bytes that go straight to the user's own memory.
class SpanArrival final : public client::Arrival {
 public:
  SpanArrival(std::span<std::byte> out, DType dtype) : out_(out), dtype_(dtype) {}

 private:
  std::byte* room(const TensorInfo& i, size_t size) override {
    return i.dtype == dtype_ && size == out_.size() ? out_.data() : nullptr;
  }
  std::span<std::byte> out_;
  DType dtype_;
};

}  // namespace

std::byte* client::ScalarArrival::room(const TensorInfo& i, size_t size) {
  return client::numel_of(i) == 1 && size <= sizeof bytes_ ? bytes_ : nullptr;
}

Scalar client::ScalarArrival::take() {
  if (!present()) raise(Error(Code::no_grad, "the tensor has no gradient").at(where(at_)));
  const DType t = info().dtype;
  if (client::numel_of(info()) != 1)
    raise(Error(Code::bad_argument, "only one element tensors can be converted to Python scalars", "item")
              .at(where(at_)));
  if (is_floating(t)) {
    double d = 0;
    convert(t, bytes_, DType::float64, reinterpret_cast<std::byte*>(&d), 1);
    return d;
  }
  int64_t n = 0;
  convert(t, bytes_, DType::int64, reinterpret_cast<std::byte*>(&n), 1);
  return t == DType::boolean ? Scalar(n != 0) : Scalar(n);
}

void Tensor::copy_bytes(std::span<std::byte> out, DType dtype, std::chrono::milliseconds timeout,
                        const std::source_location& at) const {
  const auto arrival = std::make_shared<SpanArrival>(out, dtype);
  fetch(arrival, FetchKind::value);
  arrival->wait(timeout);
  if (!arrival->present()) raise(Error(Code::no_grad, "the tensor has no gradient").at(where(at)));
  const TensorInfo& i = arrival->info();
  if (i.dtype != dtype)
    raise(Error(Code::dtype_mismatch,
                std::string("expected scalar type ") + row(dtype).torch + " but found " + row(i.dtype).torch)
              .at(where(at)));
  if (static_cast<size_t>(client::numel_of(i) * size_of(dtype)) != out.size())
    raise(Error(Code::shape_mismatch, "a tensor of size " + to_string(i.shape) + " does not fill " +
                                          std::to_string(out.size() / static_cast<size_t>(size_of(dtype))) +
                                          " elements")
              .at(where(at)));
}

Tensor from_bytes(Session& session, DType dtype, std::span<const std::byte> bytes, std::span<const int64_t> shape,
                  bool requires_grad, std::source_location at) {
  const int64_t n = checked_numel(shape, at);
  if (bytes.size() != static_cast<size_t>(n * size_of(dtype)))
    raise(Error(Code::bad_tensor, "shape '" + to_string(shape) + "' is invalid for input of size " +
                                      std::to_string(bytes.size() / static_cast<size_t>(size_of(dtype))))
              .at(where(at)));
  if (requires_grad && !is_floating(dtype))
    raise(Error(Code::bad_argument, "Only Tensors of floating point and complex dtype can require gradients")
              .at(where(at)));
  client::Core& core = session.core();
  uint64_t number = 0;
  if (bytes.size() > client::kInlineBytes) {
    core.check();
    number = core.link().upload(core, dtype, shape, bytes, core.timeout({}));
  }
  return core.upload(dtype, shape, bytes, number, requires_grad, at);
}

Tensor from_data(Session& session, DType dtype, std::span<const std::byte> bytes, std::span<const int64_t> shape,
                 const TensorOptions& options, std::source_location at) {
  const DType to = options.dtype.value_or(dtype);
  if (to == dtype) return from_bytes(session, dtype, bytes, shape, options.requires_grad, at);
  const size_t n = bytes.size() / static_cast<size_t>(size_of(dtype));
  std::vector<std::byte> converted(n * static_cast<size_t>(size_of(to)));
  client::convert(dtype, bytes.data(), to, converted.data(), n);
  return from_bytes(session, to, converted, shape, options.requires_grad, at);
}

Tensor tensor(Session& session, Literal literal, TensorOptions options, std::source_location at) {
  Flat flat;
  flat.at = at;
  flat.shape_of(literal);
  flat.take(literal, 0);
  Category kind = flat.numbers.empty() ? Category::floating : Category::boolean;
  for (const Scalar& s : flat.numbers) kind = std::max(kind, s.kind);
  const DType natural = kind == Category::floating  ? session.core().default_dtype()
                        : kind == Category::integer ? DType::int64
                                                    : DType::boolean;
  const DType to = options.dtype.value_or(natural);
  const DType exact = kind == Category::floating ? DType::float64 : DType::int64;
  std::vector<std::byte> bytes(flat.numbers.size() * 8);
  for (size_t i = 0; i < flat.numbers.size(); ++i) {
    const Scalar& s = flat.numbers[i];
    if (s.kind == Category::integer && category(to) == Category::integer && !fits(s.i, to))
      raise(Error(Code::bad_tensor, std::string("value cannot be converted to type ") + name(to) + " without overflow")
                .at(where(at)));
    const double d = s.real();
    const int64_t n = s.kind == Category::floating ? 0 : s.integer();
    std::memcpy(bytes.data() + 8 * i, exact == DType::float64 ? static_cast<const void*>(&d) : &n, 8);
  }
  return from_data(session, exact, bytes, flat.shape, {.dtype = to, .requires_grad = options.requires_grad}, at);
}

Tensor tensor_of(Session& session, DType dtype, std::span<const std::byte> bytes, TensorOptions options,
                 std::source_location at) {
  if (!options.dtype && dtype != DType::boolean)
    options.dtype = is_floating(dtype) ? session.core().default_dtype() : DType::int64;
  const int64_t shape[] = {static_cast<int64_t>(bytes.size()) / size_of(dtype)};
  return from_data(session, dtype, bytes, shape, options, at);
}

Tensor tensor(Literal literal, TensorOptions options, std::source_location at) {
  return tensor(default_session(), literal, options, at);
}

}  // namespace gradwire
