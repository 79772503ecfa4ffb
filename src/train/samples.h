#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/adapter.h"
#include "model/model.h"
#include "ops/context.h"
#include "text/text_assets.h"
#include "wgrad/train.h"

namespace wgrad::train {

/// Answers the prompts of --sample-prompt and --sample-prompts with the model as it is, the
/// likeliest token each time. Changes nothing that training reads.
class Sampler {
 public:
  static bool wanted(const TrainOptions& options);
  /// Reads and encodes the prompts; a file without one and a prompt that is too long for the model
  /// are input errors. A prompt is one user turn where the model has a chat template.
  Sampler(const TrainOptions& options, text::TextAssets assets, int64_t max_positions);

  /// One sample a prompt, in their order.
  std::vector<Sample> take(Context& ctx, const model::Model& model, const model::Adapter* adapter,
                           int64_t step) const;

 private:
  struct Prompt {
    std::string text;
    std::vector<uint32_t> ids;
  };

  text::TextAssets assets_;
  std::vector<Prompt> prompts_;
  int64_t max_tokens_;
};

}  // namespace wgrad::train
