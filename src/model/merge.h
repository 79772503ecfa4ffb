#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "model/adapter.h"
#include "model/checkpoint_writer.h"
#include "model/model.h"
#include "ops/context.h"

namespace wgrad::model {

/// Writes base plus adapter as a Hugging Face folder: the adapted weights computed in f32 and
/// rounded once to the stored type of W, saved modules likewise, other tensors byte for byte,
/// sharded as the base is, with its config, tokenizer and template. From a .gguf base the weights
/// become f32 where it is quantised. Where a tied embedding or output layer is adapted or saved,
/// the output layer becomes a tensor of its own. The folder must not exist; it appears when it is
/// complete. Returns how many of the base's tensors were quantised.
int64_t merge_adapter(const std::filesystem::path& base, const std::filesystem::path& adapter,
                      const std::filesystem::path& out);

/// The edits that add an adapter to its base: W + scale B A, a few rows at a time. Borrows all.
std::unique_ptr<CheckpointEdits> adapter_edits(Context& ctx, const ModelConfig& config,
                                               const Adapter& adapter);

/// Writes a model that was trained whole as a Hugging Face folder into the existing folder `out`,
/// each tensor in the stored type of `base`, with the base's config, tokenizer and template.
void save_model(Context& ctx, const Model& model, const std::filesystem::path& base,
                const std::filesystem::path& out);

}  // namespace wgrad::model
