// What ranks say to each other: `gradwire launch --servers A,B,C,D hello_ranks` starts one of these for each server.
#include <iostream>

#include "client/distributed.h"
#include "client/gradwire.h"

namespace dist = gradwire::distributed;

int main() try {
  const auto client = gradwire::connect("");  // launch says where
  dist::init_process_group();
  const int64_t rank = dist::get_rank(), world = dist::get_world_size();
  std::cout << "Hello from process " << rank << " (out of " << world << ")\n";

  // Point to point: ten numbers from rank 0 to rank 1.
  if (world > 1 && rank == 0) dist::send(gradwire::arange(10), 1);
  if (rank == 1) {
    const auto numbers = gradwire::zeros({10}, {.dtype = gradwire::int64});
    dist::recv(numbers, 0);
    std::cout << "received " << numbers << "\n";
  }

  // Everyone's rank, added up, on every rank.
  const auto sum = gradwire::full({1}, rank, {.dtype = gradwire::float32});
  dist::all_reduce(sum);
  std::cout << "the ranks' sum is " << sum.item<float>() << "\n";
  dist::barrier();
  return 0;
} catch (const gradwire::Error& e) {
  std::cerr << "hello_ranks: " << gradwire::name(e.code()) << ": " << e.what() << "\n";
  return 1;
}
