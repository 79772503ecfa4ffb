#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/adapter.h"
#include "model/decoder.h"
#include "model/model.h"
#include "ops/context.h"
#include "text/text_assets.h"
#include "train/device_choice.h"

namespace wgrad::train {

/// A frozen model with its text and perhaps adapters, ready on a device. Owns all of it; what the
/// members hold on the device goes before the context.
struct LoadedModel {
  std::unique_ptr<Context> ctx;
  text::TextAssets text;
  model::Model model;
  std::vector<model::Adapter> adapters;

  /// The first one.
  const model::Adapter* adapter_or_null() const {
    return adapters.empty() ? nullptr : &adapters.front();
  }
};

struct InferenceOptions {
  std::string model;
  std::vector<std::string> adapters;  ///< folders
  std::string device = "auto";
  Precision dtype = Precision::kAuto;
};

LoadedModel load_for_inference(const InferenceOptions& options);

}  // namespace wgrad::train
