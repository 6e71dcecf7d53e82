#pragma once

#include <capnp/any.h>

#include <bit>
#include <cstring>
#include <span>
#include <vector>

#include "schema/gradwire.capnp.h"
#include "schema/op_call.h"

/// The columns of a batch lie in memory as they do on the wire: one copy each way, no loop over fields.
namespace gradwire::wire {

static_assert(std::endian::native == std::endian::little, "columns are copied as they are");
static_assert(sizeof(gradwire::OpCall) == 16 && offsetof(gradwire::OpCall, grad_mode) == 2 &&
              offsetof(gradwire::OpCall, args) == 3 && offsetof(gradwire::OpCall, line) == 4 &&
              offsetof(gradwire::OpCall, out) == 8);
static_assert(sizeof(gradwire::Arg) == 16 && offsetof(gradwire::Arg, part) == 1 &&
              offsetof(gradwire::Arg, count) == 4 && offsetof(gradwire::Arg, i) == 8);
static_assert(sizeof(gradwire::Batch::Line) == 8 && offsetof(gradwire::Batch::Line, line) == 4);
static_assert(sizeof(gradwire::Fetch) == 16 && offsetof(gradwire::Fetch, part) == 8 &&
              offsetof(gradwire::Fetch, kind) == 9);

/// The bytes of a list of structs whose elements are `size` bytes and no pointers, as this version's are; null for the
/// lists of other versions, which must be read field by field.
template <class Wire> const kj::byte* column(typename capnp::List<Wire>::Reader list, size_t size) {
  if (list.size() == 0) return nullptr;
  const auto section = [&](uint i) { return capnp::AnyStruct::Reader(list[i]); };
  const auto first = section(0), last = section(list.size() - 1);
  const kj::byte* begin = first.getDataSection().begin();
  const bool plain = first.getDataSection().size() == size && first.getPointerSection().size() == 0 &&
                     last.getDataSection().begin() == begin + size * (list.size() - 1);
  return plain ? begin : nullptr;
}

/// Fills a list that was made with as many elements.
template <class Wire, class Plain>
void put_column(typename capnp::List<Wire>::Builder list, std::span<const Plain> from) {
  if (from.empty()) return;
  auto first = capnp::AnyStruct::Builder(list[0]).getDataSection();
  std::memcpy(first.begin(), from.data(), from.size_bytes());
}

/// A whole batch but for its digest. Gaps between fields are cleared: a resent batch has the same bytes.
inline void put(Batch::Builder to, const gradwire::Batch& from) {
  to.setSeq(from.seq), to.setAcked(from.acked), to.setEpoch(from.epoch);
  put_column<OpCall, gradwire::OpCall>(to.initCalls(from.calls.size()), from.calls);
  if (!from.args.empty()) {
    auto args = to.initArgs(from.args.size());
    auto* p = capnp::AnyStruct::Builder(args[0]).getDataSection().begin();
    for (const auto& a : from.args) {
      const uint64_t head = uint64_t(a.kind) | uint64_t(a.part) << 8 | uint64_t(a.count) << 32;
      std::memcpy(p, &head, 8), std::memcpy(p + 8, &a.i, 8);
      p += 16;
    }
  }
  auto ints = to.initInts(from.ints.size());
  for (uint i = 0; i < from.ints.size(); ++i) ints.set(i, from.ints[i]);
  auto texts = to.initTexts(from.texts.size());
  for (uint i = 0; i < from.texts.size(); ++i) {
    texts.set(i, kj::arrayPtr(reinterpret_cast<const kj::byte*>(from.texts[i].data()), from.texts[i].size()));
  }
  put_column<Line, gradwire::Batch::Line>(to.initLines(from.lines.size()), from.lines);
  auto fetches = to.initFetches(from.fetches.size());
  for (uint i = 0; i < from.fetches.size(); ++i) {
    fetches[i].setId(from.fetches[i].id);
    fetches[i].setPart(static_cast<uint8_t>(from.fetches[i].part));
    fetches[i].setKind(static_cast<uint8_t>(from.fetches[i].kind));
  }
}

}  // namespace gradwire::wire
