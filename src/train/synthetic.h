#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/row.h"
#include "io/checkpoint_source.h"
#include "model/config.h"

namespace wgrad::train {

/// Shapes of known models, for benchmarks: weights are random, nothing is downloaded.
struct ModelShape {
  std::string_view name;
  std::string_view config_json;
};
const std::vector<ModelShape>& model_shapes();

/// The config.json of a shape by name; an input error that lists the names.
std::string_view shape_json(std::string_view name);
model::ModelConfig shape_config(std::string_view name);

/// A source of normal weights of deviation 0.02 (norms 1) under the names of the config, made as
/// they are read: a function of the name and the element.
std::unique_ptr<io::TensorSource> random_weights(const model::ModelConfig& config);

/// Rows of random ids in which every token counts.
std::vector<data::Row> random_rows(int64_t rows, int64_t tokens, int64_t vocab_size);

}  // namespace wgrad::train
