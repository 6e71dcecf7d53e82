// Linked where CUDA is absent.
#include "engine/backend.h"
#include "engine/cuda/pointwise.h"
#include "schema/error.h"

namespace gradwire::engine {

int cuda_device_count() { return 0; }
std::unique_ptr<Backend> make_cuda_backend(int) {
  throw Error(Code::bad_argument, "this server is built without CUDA");
}

cuda::PointwiseRow cuda::pointwise_row(std::string_view) { return {}; }

}  // namespace gradwire::engine
