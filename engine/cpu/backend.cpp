#include "engine/backend.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "engine/cpu/loop.h"
#include "schema/error.h"

namespace gradwire::engine {
namespace {

class CpuBackend final : public Backend {
 public:
  const char* device() const override { return "cpu"; }
  bool is_cpu() const override { return true; }

  void* allocate(size_t bytes) override {
    void* p = std::aligned_alloc(64, (bytes + 64 + 63) / 64 * 64);
    if (!p) throw Error(Code::memory_limit, "out of memory: tried to allocate " + std::to_string(bytes) + " bytes");
    return p;
  }
  void free(void* p, size_t) override { std::free(p); }
  void to_host(void* to, const void* from, size_t bytes) override { from_host(to, from, bytes); }
  void from_host(void* to, const void* from, size_t bytes) override {
    if (bytes) std::memcpy(to, from, bytes);
  }
  void sync() override {}

  void run(const Kernel& kernel, const Launch& launch) override { kernel.cpu(launch); }
  void run(const Pointwise& p, DType compute, std::span<const View> views, const void* functor) override {
    const RowKernel kernel = p.cpu[static_cast<int>(compute)];
    if (!kernel) {
      throw Error(Code::not_implemented,
                  '"' + std::string(p.name) + "\" not implemented for '" + row(compute).torch + "'");
    }
    cpu::run(nest_of(views), kernel, functor);
  }
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace gradwire::engine
