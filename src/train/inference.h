#pragma once

#include <memory>
#include <optional>
#include <string>

#include "model/adapter.h"
#include "model/decoder.h"
#include "model/model.h"
#include "ops/context.h"
#include "text/text_assets.h"
#include "train/device_choice.h"

namespace wgrad::train {

/// A frozen model with its text and perhaps an adapter, ready on a device. Owns all of it; what the
/// members hold on the device goes before the context.
struct LoadedModel {
  std::unique_ptr<Context> ctx;
  text::TextAssets text;
  model::Model model;
  std::optional<model::Adapter> adapter;

  const model::Adapter* adapter_or_null() const { return adapter ? &*adapter : nullptr; }
};

struct InferenceOptions {
  std::string model, adapter;  ///< adapter: empty for none
  std::string device = "auto";
  Precision dtype = Precision::kAuto;
};

LoadedModel load_for_inference(const InferenceOptions& options);

}  // namespace wgrad::train
