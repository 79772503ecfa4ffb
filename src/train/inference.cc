#include "train/inference.h"

#include "data/model_text.h"

namespace wgrad::train {

LoadedModel load_for_inference(const InferenceOptions& options) {
  model::ModelConfig config = model::read_config(options.model);
  text::TextAssets text = data::load_model_text(options.model);
  const DeviceChoice device = choose_device(options.device);
  std::unique_ptr<Context> ctx = open_context(device, choose_compute(options.dtype, device));
  const std::shared_ptr<const io::TensorSource> source = io::open_checkpoint(options.model);
  std::vector<model::Adapter> adapters;
  for (const std::string& folder : options.adapters) {
    adapters.push_back(model::Adapter::load(*ctx, config, folder, source.get()));
  }
  model::LoadOptions load;
  load.precision = ops::WeightPrecision::kCompute;
  model::Model model = model::load_model(*ctx, std::move(config), source, load);
  return {std::move(ctx), std::move(text), std::move(model), std::move(adapters)};
}

}  // namespace wgrad::train
