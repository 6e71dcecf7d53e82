#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "server/cluster/plane/maps.h"
#include "server/cluster/plane/mesh.h"
#include "server/cluster/plane/orders.h"
#include "server/cluster/plane/transport.h"

namespace gradwire::server::cluster::plane {

/// The helper process of one plane: one thread that carries out orders. Collectives run one after the other, in the
/// order in which they come; send and recv go on beside them.
class Helper {
 public:
  /// Orders come on this socket, and answers go there; `socket` stays the caller's.
  explicit Helper(int socket) : socket_(socket) {}
  /// Until the server is gone (0), or something has failed and been said (1).
  int run();

 private:
  struct Pairwise {
    uint64_t id;
    int rank;
    bool sends;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  };

  void read_orders();
  void take(const Order&, Fd);
  void prepare(const Order&);
  void connect(const Order&);
  char* memory_of(const Order&, size_t bytes);
  void start_pairwise(const Order&);
  void finish_pairwise();
  void collective(const Order&);
  void answer(uint64_t id, int rank, std::string_view text = {});
  void refuse(uint64_t id, Code, std::string_view text);

  int socket_;
  bool over_ = false;     // the server is gone
  uint64_t current_ = 0;  // the order that is being carried out
  int rank_ = 0, size_ = 0;
  uint32_t sequence_ = 0;  // of collectives
  std::unique_ptr<Mesh> mesh_;
  std::vector<std::string> addresses_;
  Maps areas_;  // outlives what lends them
  std::shared_ptr<Transport> transport_;
  std::shared_ptr<gloo::Context> context_;
  std::deque<Order> waiting_;  // no longer than the server's own list of what is pending
  std::deque<Pairwise> pairwise_;
};

/// Carries out one collective in place. `data`: bytes_of(terms, rank, size) of them;
/// `sequence`: how many have run before.
void run_collective(const std::shared_ptr<gloo::Context>&, const Terms&, uint32_t sequence, char* data);

}  // namespace gradwire::server::cluster::plane
