#include "server/rpc/convert.h"

#include <kj/exception.h>

#include <cstring>
#include <new>

#include "schema/wire_columns.h"
#include "server/rpc/limits.h"

namespace gradwire::server {

namespace {

Error bad(const std::string& message) { return Error(Code::bad_program, message); }

template <class Wire, class Plain, class Field>
void read_column(typename capnp::List<Wire>::Reader list, std::vector<Plain>& to, Field field) {
  to.resize(list.size());
  if (const kj::byte* raw = wire::column<Wire>(list, sizeof(Plain))) {
    std::memcpy(static_cast<void*>(to.data()), raw, to.size() * sizeof(Plain));
  } else {
    for (uint i = 0; i < list.size(); ++i) to[i] = field(list[i]);
  }
}

void read_calls(capnp::List<wire::OpCall>::Reader list, std::vector<OpCall>& to) {
  read_column<wire::OpCall, OpCall>(list, to, [](wire::OpCall::Reader c) {
    return OpCall{c.getOp(), c.getGradMode(), c.getArgs(), c.getLine(), c.getOut()};
  });
  for (auto& c : to) {  // a bool is one bit on the wire, and the other seven are anybody's
    auto* byte = reinterpret_cast<unsigned char*>(&c) + offsetof(OpCall, grad_mode);
    *byte &= 1;
  }
}

void read_args(capnp::List<wire::Arg>::Reader list, std::vector<Arg>& to) {
  read_column<wire::Arg, Arg>(list, to, [](wire::Arg::Reader a) {
    Arg arg;
    arg.kind = static_cast<ArgKind>(a.getKind()), arg.part = static_cast<Part>(a.getPart());
    arg.count = a.getCount(), arg.i = static_cast<int64_t>(a.getValue());
    return arg;
  });
  for (auto& a : to) std::memset(reinterpret_cast<unsigned char*>(&a) + 2, 0, 2);  // a gap, which the digest reads
}

void read_ints(capnp::List<int64_t>::Reader list, std::vector<int64_t>& to) {
  to.resize(list.size());
  const capnp::AnyList::Reader any(list);
  const auto raw = any.getRawBytes();
  if (any.getElementSize() == capnp::ElementSize::EIGHT_BYTES && raw.size() == 8 * to.size()) {
    if (!to.empty()) std::memcpy(to.data(), raw.begin(), raw.size());
  } else {
    for (uint i = 0; i < list.size(); ++i) to[i] = list[i];
  }
}

/// Walks the arguments of a batch as a session does, and finds what does not fit.
class Walk {
 public:
  explicit Walk(const Batch& b) : b_(b) {}

  /// Null if all is well.
  const char* call(const OpCall& c) {
    if (c.line > b_.lines.size()) return "has a source line that is not in the batch";
    for (int i = 0; i < c.args; ++i) {
      if (const char* wrong = argument()) return wrong;
    }
    return nullptr;
  }
  bool at_end() const { return arg_ == b_.args.size() && int_ == b_.ints.size(); }

 private:
  static constexpr const char* kShort = "has arguments that are not in the batch";

  const char* ints(uint64_t n) {
    if (n > b_.ints.size() - int_) return kShort;
    int_ += n;
    return nullptr;
  }
  const char* bools(uint64_t n) {
    if (n > b_.ints.size() - int_) return kShort;
    for (uint64_t i = 0; i < n; ++i) {
      if (static_cast<uint64_t>(b_.ints[int_ + i]) > 1) return "has a bool that is neither 0 nor 1";
    }
    int_ += n;
    return nullptr;
  }
  const char* array(const Arg& a) {
    if (a.count > static_cast<uint32_t>(kMaxDims)) return "has an index list of too many dimensions";
    if (a.count > b_.ints.size() - int_) return kShort;
    uint64_t values = 1;
    for (uint32_t i = 0; i < a.count; ++i) {
      const int64_t size = b_.ints[int_ + i];
      if (size < 0 || __builtin_mul_overflow(values, static_cast<uint64_t>(size), &values))
        return "has an index list of a bad size";
    }
    int_ += a.count;
    return a.kind == ArgKind::bool_array ? bools(values) : ints(values);
  }
  /// One argument without others after it.
  const char* plain(const Arg& a) {
    switch (a.kind) {
      case ArgKind::none:
      case ArgKind::integer:
      case ArgKind::real:
      case ArgKind::ellipsis:
        return nullptr;
      case ArgKind::boolean:
        return static_cast<uint64_t>(a.i) > 1 ? "has a bool that is neither 0 nor 1" : nullptr;
      case ArgKind::text:
        return static_cast<uint64_t>(a.i) >= b_.texts.size() ? "has a text that is not in the batch" : nullptr;
      case ArgKind::dtype:
        return static_cast<uint64_t>(a.i) >= kDTypes ? "has an unknown dtype" : nullptr;
      case ArgKind::tensor:
        return a.part > Part::grad ? "has an unknown part of a tensor" : nullptr;
      case ArgKind::ints:
      case ArgKind::floats:
        return ints(a.count);
      case ArgKind::bools:
        return bools(a.count);
      case ArgKind::slice:
        return a.count > 7 ? "has a bad slice" : ints(3);
      case ArgKind::int_array:
      case ArgKind::bool_array:
        return array(a);
      default:
        return "has an argument of an unknown kind";
    }
  }
  const char* argument() {
    if (arg_ == b_.args.size()) return kShort;
    const Arg& a = b_.args[arg_++];
    if (a.kind != ArgKind::tensors && a.kind != ArgKind::index) return plain(a);
    if (a.count > b_.args.size() - arg_) return kShort;
    for (uint32_t i = 0; i < a.count; ++i) {
      const Arg& one = b_.args[arg_++];
      const ArgKind k = one.kind;
      const bool fits =
          k == ArgKind::tensor || k == ArgKind::none ||
          (a.kind == ArgKind::index && (k == ArgKind::integer || k == ArgKind::boolean || k == ArgKind::slice ||
                                        k == ArgKind::ellipsis || k == ArgKind::int_array || k == ArgKind::bool_array));
      if (!fits) return "has a list with an element of another kind";
      if (const char* wrong = plain(one)) return wrong;
    }
    return nullptr;
  }

  const Batch& b_;
  size_t arg_ = 0, int_ = 0;
};

Result<NumberedBatch> checked(NumberedBatch n) {
  const Batch& b = n.batch;
  for (const auto& l : b.lines) {
    if (l.file >= b.texts.size()) return bad("a source line's file is not in the batch");
  }
  for (const auto& f : b.fetches) {
    if (f.part > Part::grad || f.kind > FetchKind::info) return bad("a fetch is of an unknown kind");
  }
  Walk walk(b);
  for (size_t i = 0; i < b.calls.size(); ++i) {
    if (const char* wrong = walk.call(b.calls[i])) {
      return bad("call " + std::to_string(i) + " of the batch " + wrong).at(b.seq, static_cast<int64_t>(i));
    }
  }
  if (!walk.at_end()) return bad("the batch has arguments that belong to no call");
  n.digest = digest_of(b);
  return n;
}

struct Hash {
  uint64_t a = 0x9E3779B97F4A7C15, b = 0xD1B54A32D192ED03;

  static uint64_t mix(uint64_t x, uint64_t y) {
    const auto m = static_cast<unsigned __int128>(x) * y;
    return static_cast<uint64_t>(m) ^ static_cast<uint64_t>(m >> 64);
  }
  void word(uint64_t v) { a = mix(a ^ v, 0xA0761D6478BD642F); }
  void bytes(const void* from, size_t n) {
    const auto* p = static_cast<const unsigned char*>(from);
    word(n);
    uint64_t w[4];
    for (; n >= 32; n -= 32, p += 32) {  // two independent chains
      std::memcpy(w, p, 32);
      a = mix(w[0] ^ a, w[1] ^ 0xE7037ED1A0B428DB);
      b = mix(w[2] ^ b, w[3] ^ 0x8EBC6AF09C88C6E3);
    }
    if (n) {
      std::memset(w, 0, 32), std::memcpy(w, p, n);
      a = mix(w[0] ^ a, w[1] ^ 0x589965CC75374CC3);
      b = mix(w[2] ^ b, w[3] ^ 0x1D8E4E27C47D124F);
    }
  }
  template <class T> void column(const std::vector<T>& v) { bytes(v.data(), v.size() * sizeof(T)); }
};

}  // namespace

uint64_t digest_of(const Batch& b) {
  Hash h;
  h.word(b.seq), h.word(b.epoch);
  h.column(b.calls), h.column(b.args), h.column(b.ints), h.column(b.lines);
  h.word(b.texts.size());
  for (const auto& t : b.texts) h.bytes(t.data(), t.size());
  h.word(b.fetches.size());
  for (const auto& f : b.fetches) h.word(f.id), h.word(uint64_t(f.part) << 8 | uint64_t(f.kind));
  return Hash::mix(h.a ^ 0xEB44ACCAB455D165, h.b);
}

Result<NumberedBatch> read_batch(wire::Batch::Reader from) {
  try {
    const auto calls = from.getCalls();
    const auto args = from.getArgs();
    const auto ints = from.getInts();
    const auto texts = from.getTexts();
    const auto lines = from.getLines();
    const auto fetches = from.getFetches();
    if (calls.size() > kMaxCalls)
      return bad("a batch has at most 65536 calls, this one has " + std::to_string(calls.size()));
    if (texts.size() > kMaxCalls || lines.size() > kMaxCalls)
      return bad("a batch has at most 65536 texts and source lines");
    if (fetches.size() > kMaxFetches) return bad("a batch has at most 8192 fetches");
    if (args.size() > kMaxArgs || ints.size() > kMaxArgs)
      return bad("a batch has at most 1048576 arguments and integers");

    NumberedBatch n;
    Batch& b = n.batch;
    b.seq = from.getSeq(), b.acked = from.getAcked(), b.epoch = from.getEpoch();
    read_calls(calls, b.calls);
    read_args(args, b.args);
    read_ints(ints, b.ints);
    size_t bytes = 0;
    b.texts.reserve(texts.size());
    for (const auto t : texts) {
      if ((bytes += t.size()) > kMaxTexts) return bad("the texts of a batch have at most 8 MiB");
      b.texts.emplace_back(reinterpret_cast<const char*>(t.begin()), t.size());
    }
    read_column<wire::Line, Batch::Line>(lines, b.lines, [](wire::Line::Reader l) {
      return Batch::Line{l.getFile(), l.getLine()};
    });
    b.fetches.reserve(fetches.size());
    for (const auto f : fetches) {
      b.fetches.push_back({f.getId(), static_cast<Part>(f.getPart()), static_cast<FetchKind>(f.getKind())});
    }
    return checked(std::move(n));
  } catch (...) {
    return caught_error(Code::bad_program);
  }
}

Result<DType> read_dtype(uint8_t t) {
  if (t >= kDTypes) return Error(Code::bad_argument, "unknown dtype " + std::to_string(t));
  return static_cast<DType>(t);
}

Result<Shape> read_shape(capnp::List<int64_t>::Reader list) {
  if (list.size() > static_cast<uint>(kMaxDims)) return Error(Code::bad_argument, "a tensor has at most 32 dimensions");
  Shape shape;
  int64_t numel = 1;
  bool empty = false;
  for (const int64_t size : list) {
    if (size < 0 || size > kMaxDim)
      return Error(Code::bad_argument, "a dimension of size " + std::to_string(size) + " is out of range");
    empty |= size == 0;
    if (size > 0 && (__builtin_mul_overflow(numel, size, &numel) || numel > kMaxNumel)) numel = kMaxNumel + 1;
    shape.push_back(size);
    if (numel > kMaxNumel) numel = kMaxNumel + 1;
  }
  if (!empty && numel > kMaxNumel) return Error(Code::bad_argument, "a tensor has at most 2^48 elements");
  return shape;
}

Result<SessionOptions> read_options(wire::SessionOptions::Reader from) {
  SessionOptions o;
  const auto dtype = read_dtype(from.getDtype());
  if (!dtype) return dtype.error();
  o.dtype = *dtype;
  const auto device = from.getDevice(), name = from.getName();
  const auto compat = from.getCompat();
  if (device.size() > 255 || name.size() > 255)
    return Error(Code::bad_argument, "a device's and a session's name have at most 255 bytes");
  if (compat.size() > 64) return Error(Code::bad_argument, "at most 64 names of compat behaviours");
  o.device.assign(device.begin(), device.size()), o.name.assign(name.begin(), name.size());
  if (from.getHasSeed()) o.seed = from.getSeed();
  o.memory_limit = from.getMemoryLimit(), o.ttl_seconds = from.getTtlSeconds();
  for (const auto c : compat) {
    if (c.size() > 255) return Error(Code::bad_argument, "a compat behaviour's name has at most 255 bytes");
    o.compat.emplace_back(c.begin(), c.size());
  }
  return o;
}

Error caught_error(Code malformed) noexcept {
  try {
    throw;
  } catch (const Error& e) {
    return e;
  } catch (const std::bad_alloc&) {
    return Error(Code::memory_limit, "the server is out of memory");
  } catch (const kj::Exception& e) {
    if (e.getType() == kj::Exception::Type::DISCONNECTED)
      return Error(Code::closed, "the session ended before the call was answered");
    return Error(malformed, "the message is malformed");
  } catch (...) {
    return Error(Code::internal, "the call failed inside the server");
  }
}

}  // namespace gradwire::server
