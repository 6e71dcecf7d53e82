#include "server/cluster/message_wire.h"

#include <algorithm>
#include <cstdint>

namespace gradwire::server::cluster {

namespace {

capnp::Text::Reader text(const std::string& s) { return {s.c_str(), s.size()}; }
capnp::Data::Reader data(const std::string& s) { return {reinterpret_cast<const capnp::byte*>(s.data()), s.size()}; }

void put(wire::Error::Builder to, const Error& e) {
  to.setCode(static_cast<uint8_t>(e.code()));
  to.setMessage(text(e.message().substr(0, kMaxText)));
  to.setOp(text(e.op().substr(0, kMaxText)));
}

[[noreturn]] void malformed(const char* what) {
  throw Error(Code::bad_request, std::string("a message of a peer is malformed: ") + what);
}

template <class Reader> std::string get(Reader r, size_t most) {
  if (r.size() > most) malformed("a text is too long");
  return {reinterpret_cast<const char*>(r.begin()), r.size()};
}

/// `count`: how many values the enum has.
template <class E> E get_enum(uint8_t v, int count) {
  if (v >= count) malformed("an unknown kind");
  return static_cast<E>(v);
}

Error get(wire::Error::Reader r) {
  const auto code = get_enum<Code>(r.getCode(), kCodes);
  return Error(code, get(r.getMessage(), kMaxText), get(r.getOp(), kMaxText));
}

Call get(wire::PeerCall::Reader r) {
  Call c;
  c.sequence = r.getSequence();
  c.terms.what = get_enum<Collective>(r.getWhat(), kCollectiveKinds);
  c.terms.op = get_enum<ReduceOp>(r.getOp(), kReductions);
  c.terms.dtype = get_enum<DType>(r.getDtype(), kDTypes);
  c.terms.count = r.getCount(), c.terms.root = r.getRoot(), c.terms.part = r.getPart();
  c.patience = std::clamp(Milliseconds(r.getPatience()), Milliseconds(0), kMaxPatience);
  c.split = r.getSplit();
  const auto ranks = r.getRanks();
  if (ranks.size() > static_cast<unsigned>(kMaxRanks)) malformed("too many ranks");
  for (const int rank : ranks) c.ranks.push_back(rank);
  return c;
}

Verdict get(wire::PeerVerdict::Reader r) {
  Verdict v;
  v.sequence = r.getSequence(), v.pairwise = r.getPairwise();
  if (r.getFailed()) v.error = get(r.getError());
  v.tag = r.getTag(), v.source = r.getSource();
  v.child = r.getChild(), v.rank = r.getRank(), v.size = r.getSize();
  if (v.child != 0 && (v.size < 1 || v.size > kMaxRanks || v.rank < 0 || v.rank >= v.size)) malformed("a rank");
  return v;
}

Seated get(wire::PeerSeated::Reader r) {
  Seated s;
  const auto all = r.getAddresses();
  s.rank = r.getRank();
  if (all.size() > static_cast<unsigned>(kMaxRanks) || s.rank < 0 || static_cast<unsigned>(s.rank) >= all.size())
    malformed("a rank");
  for (const auto a : all) s.addresses.push_back(get(a, kMaxText));
  return s;
}

Connect get(wire::PeerConnect::Reader r) {
  Connect c;
  const auto blobs = r.getBlobs();
  if (blobs.size() > static_cast<unsigned>(kMaxRanks)) malformed("too many ranks");
  for (const auto b : blobs) c.blobs.push_back(get(b, kMaxBlob));
  c.key = get(r.getKey(), kKeyBytes);
  if (c.key.size() != kKeyBytes) malformed("the key");
  return c;
}

struct Writer {
  wire::PeerMessage::Builder to;
  void operator()(const Ping&) { to.setPing(); }
  void operator()(const Hello& m) {
    auto h = to.initHello();
    h.setMinVersion(m.min_version), h.setMaxVersion(m.max_version), h.setAddress(text(m.address));
  }
  void operator()(const Join& m) {
    auto j = to.initJoin();
    j.setMeeting(text(m.meeting)), j.setWorldSize(m.world_size), j.setRank(m.rank);
  }
  void operator()(const Retry&) { to.setRetry(); }
  void operator()(const Seated& m) {
    auto s = to.initSeated();
    s.setRank(m.rank);
    auto all = s.initAddresses(static_cast<unsigned>(m.addresses.size()));
    for (unsigned i = 0; i < all.size(); ++i) all.set(i, text(m.addresses[i]));
  }
  void operator()(const Blob& m) { to.setBlob(data(m.bytes)); }
  void operator()(const Connect& m) {
    auto c = to.initConnect();
    auto all = c.initBlobs(static_cast<unsigned>(m.blobs.size()));
    for (unsigned i = 0; i < all.size(); ++i) all.set(i, data(m.blobs[i]));
    c.setKey(data(m.key));
  }
  void operator()(const Connected&) { to.setConnected(); }
  void operator()(const Formed&) { to.setFormed(); }
  void operator()(const Call& m) {
    auto c = to.initCall();
    c.setSequence(m.sequence);
    c.setWhat(static_cast<uint8_t>(m.terms.what)), c.setOp(static_cast<uint8_t>(m.terms.op));
    c.setDtype(static_cast<uint8_t>(m.terms.dtype)), c.setCount(m.terms.count), c.setRoot(m.terms.root);
    c.setPart(m.terms.part);
    c.setPatience(m.patience.count()), c.setSplit(m.split);
    auto ranks = c.initRanks(static_cast<unsigned>(m.ranks.size()));
    for (unsigned i = 0; i < ranks.size(); ++i) ranks.set(i, m.ranks[i]);
  }
  void operator()(const Verdict& m) {
    auto v = to.initVerdict();
    v.setSequence(m.sequence), v.setPairwise(m.pairwise);
    if (m.error) v.setFailed(true), put(v.initError(), *m.error);
    v.setTag(m.tag), v.setSource(m.source), v.setChild(m.child), v.setRank(m.rank), v.setSize(m.size);
  }
  void operator()(const Failed& m) { put(to.initFailed(), m.error); }
  void operator()(const Broken& m) {
    auto b = to.initBroken();
    put(b.initError(), m.error), b.setLeft(m.left);
  }
  void operator()(const Leave&) { to.setLeave(); }
};

}  // namespace

void write(wire::PeerMessage::Builder to, const Message& m) {
  to.setGroup(m.group), to.setEpoch(m.epoch);
  std::visit(Writer{to}, m.body);
}

Message read(wire::PeerMessage::Reader r) {
  Message m{r.getGroup(), r.getEpoch(), {}};
  switch (r.which()) {
    case wire::PeerMessage::PING:
      m.body = Ping{};
      break;
    case wire::PeerMessage::HELLO: {
      const auto h = r.getHello();
      m.body = Hello{h.getMinVersion(), h.getMaxVersion(), get(h.getAddress(), kMaxText)};
      break;
    }
    case wire::PeerMessage::JOIN: {
      const auto j = r.getJoin();
      m.body = Join{get(j.getMeeting(), kMaxText), j.getWorldSize(), j.getRank()};
      break;
    }
    case wire::PeerMessage::RETRY:
      m.body = Retry{};
      break;
    case wire::PeerMessage::SEATED:
      m.body = get(r.getSeated());
      break;
    case wire::PeerMessage::BLOB:
      m.body = Blob{get(r.getBlob(), kMaxBlob)};
      break;
    case wire::PeerMessage::CONNECT:
      m.body = get(r.getConnect());
      break;
    case wire::PeerMessage::CONNECTED:
      m.body = Connected{};
      break;
    case wire::PeerMessage::FORMED:
      m.body = Formed{};
      break;
    case wire::PeerMessage::CALL:
      m.body = get(r.getCall());
      break;
    case wire::PeerMessage::VERDICT:
      m.body = get(r.getVerdict());
      break;
    case wire::PeerMessage::FAILED:
      m.body = Failed{get(r.getFailed())};
      break;
    case wire::PeerMessage::BROKEN:
      m.body = Broken{get(r.getBroken().getError()), r.getBroken().getLeft()};
      break;
    case wire::PeerMessage::LEAVE:
      m.body = Leave{};
      break;
    default:
      malformed("an unknown kind");
  }
  return m;
}

}  // namespace gradwire::server::cluster
