#include "client/datasets/loader.h"

#include "client/errors.h"

namespace gradwire::client {

std::shared_ptr<Sampler> checked_sampler(const AnyDataset& set, const DataLoaderOptions& options,
                                         const std::source_location& at) {
  const auto refuse = [&](const std::string& text) {
    raise(Error(Code::bad_argument, text, "DataLoader").at(Where{at.file_name(), at.line()}));
  };
  if (options.num_workers < 0)
    refuse("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.");
  if (options.sampler && options.shuffle) refuse("sampler option is mutually exclusive with shuffle");
  if (options.batch_size <= 0)
    refuse("batch_size should be a positive integer value, but got batch_size=" + std::to_string(options.batch_size));
  if (options.sampler) return {std::shared_ptr<void>(), options.sampler};
  if (options.shuffle) return std::make_shared<RandomSampler>(set, options.seed);
  return std::make_shared<SequentialSampler>(set);
}

}  // namespace gradwire::client
