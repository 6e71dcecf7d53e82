#include "server/cluster/plane/orders.h"

#include <errno.h>
#include <sys/socket.h>

namespace gradwire::server::cluster::plane {

namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 46;

}  // namespace

Sent send_packet(int socket, const void* message, size_t size, int descriptor) {
  iovec data{const_cast<void*>(message), size};
  msghdr m{};
  m.msg_iov = &data;
  m.msg_iovlen = 1;
  Rights rights;
  if (descriptor >= 0) rights.put(m, descriptor);
  for (;;) {
    if (::sendmsg(socket, &m, MSG_NOSIGNAL) >= 0) return Sent::yes;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS) return Sent::full;
    if (errno != EINTR) return Sent::gone;
  }
}

int take_packet(int socket, void* message, size_t size, Fd* descriptor) {
  Fd came;
  int flags = 0;
  ssize_t n;
  do n = Rights::receive(socket, message, size, came, flags);
  while (n < 0 && errno == EINTR);
  if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
  if (came && descriptor) *descriptor = std::move(came);
  return static_cast<size_t>(n) == size && !(flags & (MSG_TRUNC | MSG_CTRUNC)) ? 1 : -1;
}

std::optional<Error> wrong(const Terms& t, bool pairwise, int rank, int size) {
  const auto bad = [&](const std::string& text) {
    const int c = static_cast<int>(t.what);
    return Error(Code::bad_argument, text, c < kCollectiveKinds ? gradwire::name(t.what) : "");
  };
  if (static_cast<int>(t.what) >= kCollectiveKinds) return bad("there is no such collective");
  if (static_cast<int>(t.dtype) >= kDTypes) return bad("there is no such dtype");
  const std::string name = gradwire::name(t.what);
  const bool pair = is_pairwise(t.what);
  if (pair != pairwise) return bad(name + (pair ? " needs a tag" : " takes no tag"));
  if (t.count < 0) return bad(name + ": the count is " + std::to_string(t.count));
  if (t.count > kMaxBytes / size_of(t.dtype) / size) {
    return bad(name + ": " + std::to_string(t.count) + " elements are more than the data plane can move");
  }
  if ((pair || is_rooted(t.what)) && (t.root < 0 || t.root >= size)) {
    return bad(name + ": rank " + std::to_string(t.root) + " is not one of " + std::to_string(size));
  }
  if (pair && t.root == rank) {
    return bad(t.what == Collective::send ? "cannot send tensor to process with same rank"
                                          : "cannot receive tensor from process with same rank");
  }
  if (!is_reducing(t.what)) return std::nullopt;
  if (t.op > ReduceOp::avg) return bad("op should be a constant from torch.distributed.reduce_op");
  if (is_bitwise(t.op) && is_floating(t.dtype)) {
    return bad(name + ": BAND, BOR and BXOR take whole numbers or bool, not " + gradwire::name(t.dtype));
  }
  if (t.op == ReduceOp::avg && t.dtype == DType::boolean) return bad(name + ": AVG takes numbers, not bool");
  return std::nullopt;
}

uint32_t fingerprint(const Terms& t, uint32_t sequence) {
  uint64_t h = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&](int64_t x) {
    for (int byte = 0; byte < 8; ++byte) h = (h ^ (static_cast<uint64_t>(x) >> 8 * byte & 0xff)) * 0x100000001b3;
  };
  add(sequence);
  add(static_cast<int64_t>(t.what));
  add(static_cast<int64_t>(t.dtype));
  add(t.count);
  if (is_reducing(t.what)) add(static_cast<int64_t>(t.op));
  if (is_rooted(t.what)) add(t.root);
  return static_cast<uint32_t>(h ^ h >> 32);
}

size_t bytes_of(const Terms& t, int rank, int size) {
  return static_cast<size_t>(t.count * size_of(t.dtype) * parts_of(t, rank, size));
}

}  // namespace gradwire::server::cluster::plane
