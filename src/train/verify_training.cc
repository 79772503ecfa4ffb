#include "train/verify_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "io/json.h"
#include "ops/optimizer.h"
#include "train/options.h"
#include "train/synthetic.h"
#include "train/trainer.h"

namespace wgrad::train {
namespace {

using ops::VerifyCheck;
using ops::VerifyResult;

constexpr int64_t kRows = 4, kTokens = 12;
/// Enough tokens for products on subgroup matrices.
constexpr int64_t kManyRows = 12;
constexpr double kLearningRate = 1e-2;

model::ModelConfig toy_config() {
  constexpr std::string_view kJson = R"({"architectures": ["LlamaForCausalLM"],
    "model_type": "llama", "hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 16,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "tie_word_embeddings": false})";
  return model::parse_config(io::parse_json(kJson, {.where = "toy model"}), "toy model");
}

/// A toy model with rows of random tokens to learn by heart.
class Toy {
 public:
  Toy(Context& ctx, Method method, bool dora = false, int64_t row_count = kRows)
      : config_(toy_config()) {
    TrainOptions options;
    options.method = method;
    options.dora = dora;
    options.weight_decay = 0;
    trainer = std::make_unique<Trainer>(ctx, options, config_, random_weights(config_),
                                        Recompute::kNone, kTokens);
    rows = random_rows(row_count, kTokens, config_.vocab_size);
  }

  Trainer::Outcome step() {
    const Trainer::Outcome outcome = trainer->step({&rows, 1}, steps_, kLearningRate, steps_);
    ++steps_;
    return outcome;
  }
  Trainer::Evaluation evaluate() {
    data::RowStore store;
    for (const data::Row& row : rows) store.add(row);
    return trainer->evaluate(store, kRows * kTokens);
  }

  std::unique_ptr<Trainer> trainer;
  MicroBatch rows;

 private:
  model::ModelConfig config_;
  int64_t steps_ = 0;
};

std::string path_of(Context& ctx) { return ctx.compute() == ComputeType::kF16 ? "f16" : "f32"; }

/// The loss falls by half, in 100 steps at most.
VerifyResult loss_falls(Context& ctx, Method method) {
  VerifyCheck check("training", fmt::format("{}, within 100 steps", enum_name(method)),
                    path_of(ctx));
  Toy toy(ctx, method);
  const double first = toy.step().loss;
  double last = first, least = first;
  for (int i = 1; i < 100 && last > 0.5 * first; ++i) {
    last = toy.step().loss;
    least = std::min(least, last);
  }
  check.measure(fmt::format("loss {:.4g} after {:.4g}", last, first), last, 0.5 * first);
  check.require(least >= 0.0, "a loss is not negative");
  return check.result();
}

VerifyResult gradients_reach_all(Context& ctx, Method method) {
  VerifyCheck check("training", fmt::format("{}, gradients after step 1", enum_name(method)),
                    path_of(ctx));
  Toy toy(ctx, method);
  toy.step();
  toy.step();
  for (const model::Parameter& p : toy.trainer->parameters().parameters()) {
    const std::vector<float> grad = ctx.read<float>(p.grad);
    check.require(std::any_of(grad.begin(), grad.end(), [](float g) { return g != 0.0f; }),
                  p.name + " has a gradient");
  }
  return check.result();
}

std::vector<std::vector<float>> frozen_weights(Context& ctx, const model::Model& model) {
  std::vector<std::vector<float>> all;
  const auto add = [&](const ops::Weight& w) {
    all.push_back(ctx.read<float>(ops::weight_to_f32(ctx, w)));
  };
  add(model.embedding);
  add(model.output);
  for (const model::Layer& layer : model.layers) {
    for (const model::Linear& linear : layer.linears) add(linear.weight);
    for (const model::Norm& norm : layer.norms) {
      if (norm.weight) all.push_back(ctx.read<float>(norm.weight));
    }
  }
  return all;
}

VerifyResult adapter_keeps_the_model(Context& ctx, Method method) {
  VerifyCheck check("training", fmt::format("{}, frozen weights", enum_name(method)), path_of(ctx));
  Toy toy(ctx, method);
  const model::Model& model = toy.trainer->model();
  const std::vector<std::vector<float>> before = frozen_weights(ctx, model);
  const model::Batch batch = make_batch(ctx, toy.rows, model.config.vocab_size);
  model::Decoder plain(ctx, model, nullptr, {});
  model::Decoder adapted(ctx, model, toy.trainer->adapter(), {});
  const std::vector<float> without = ctx.read<float>(plain.losses(batch));
  check.require(ctx.read<float>(adapted.losses(batch)) == without,
                "an adapter with B = 0 changes nothing");
  for (int i = 0; i < 3; ++i) toy.step();
  check.require(frozen_weights(ctx, model) == before, "frozen weights keep their bits");
  check.require(ctx.read<float>(adapted.losses(batch)) != without, "the adapter has learned");
  return check.result();
}

struct AdapterGradients {
  double loss = 0;
  std::vector<std::string> names;
  std::vector<std::vector<float>> values;
};

/// Of a step from factors that are not zero and, with DoRA, lengths that are not the weights' own.
AdapterGradients gradients_in(Context& ctx, bool dora, ComputeType compute) {
  const ComputeType before = ctx.compute();
  ctx.set_compute(compute);
  AdapterGradients gradients;
  try {
    Toy toy(ctx, Method::kLora, dora, kManyRows);
    const auto& parameters = toy.trainer->parameters().parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& value = parameters[i].value;
      const bool matrix = value.rank() > 1;
      const std::vector<float> change =
          ops::verify_uniform(static_cast<size_t>(value.size()), 90 + i, matrix ? 0.1f : 0.3f);
      std::vector<float> values = ctx.read<float>(value);
      for (size_t j = 0; j < values.size(); ++j) {
        values[j] = matrix ? values[j] + change[j] : values[j] * (1 + change[j]);
      }
      ctx.upload<float>(value, values);
    }
    gradients.loss = toy.step().loss;
    for (const model::Parameter& p : parameters) {
      gradients.names.push_back(p.name);
      gradients.values.push_back(ctx.read<float>(p.grad));
    }
  } catch (...) {
    ctx.set_compute(before);
    throw;
  }
  ctx.set_compute(before);
  return gradients;
}

double norm_of(std::span<const float> values) {
  double squares = 0;
  for (const float v : values) squares += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(squares);
}

/// The loss in the context's compute type is that in f32 within 1%. A gradient passes a dozen
/// products of f16 operands, of 2^-11 each, and differences that lose some of what is left.
VerifyResult follows_f32(Context& ctx, bool dora) {
  VerifyCheck check("training", fmt::format("{}, gradients beside f32", dora ? "dora" : "lora"),
                    path_of(ctx));
  // A device that computes in f32 has nothing to compare, and its kernels take seconds to compile.
  if (ctx.modelled() == DeviceKind::kGpu && ctx.compute() == ComputeType::kF32) {
    return check.result();
  }
  const AdapterGradients seen = gradients_in(ctx, dora, ctx.compute());
  const AdapterGradients expected = gradients_in(ctx, dora, ComputeType::kF32);
  check.measure(fmt::format("loss {:.6g}, {:.6g} in f32", seen.loss, expected.loss),
                std::abs(seen.loss - expected.loss), 0.01 * expected.loss);
  for (size_t i = 0; i < seen.values.size(); ++i) {
    std::vector<float> difference = seen.values[i];
    for (size_t j = 0; j < difference.size(); ++j) difference[j] -= expected.values[i][j];
    check.measure("gradient of " + seen.names[i], norm_of(difference),
                  0.05 * norm_of(expected.values[i]));
  }
  return check.result();
}

/// The loss of the first part and that of the rest are together the loss of all.
VerifyResult only_the_response_counts(Context& ctx) {
  VerifyCheck check("training", "loss on the response alone", path_of(ctx));
  Toy toy(ctx, Method::kLora);
  const Trainer::Evaluation all = toy.evaluate();
  double parts = 0;
  int64_t tokens = 0;
  for (const bool response : {false, true}) {
    for (data::Row& row : toy.rows) {
      for (size_t i = 0; i < row.counted.size(); ++i)
        row.counted[i] = (i >= kTokens / 2) == response;
    }
    const Trainer::Evaluation part = toy.evaluate();
    parts += part.loss_sum;
    tokens += part.tokens;
    if (response) {
      check.require(part.tokens == kRows * kTokens / 2, "the response's tokens count");
    }
  }
  check.require(tokens == all.tokens, "each token counts in one part");
  check.measure("sum of the parts' losses", std::abs(parts - all.loss_sum),
                1e-5 * static_cast<double>(all.tokens));
  return check.result();
}

VerifyResult decay_is_decoupled(Context& ctx) {
  VerifyCheck check("training", "decoupled weight decay", "core");
  const std::vector<float> start = ops::verify_uniform(257, 7);
  const std::vector<float> zero(start.size(), 0.0f);
  const auto upload = [&](std::span<const float> values) {
    return ctx.make<float>({static_cast<int64_t>(values.size())}, DType::kF32, values, "verify");
  };
  const Tensor p = upload(start);
  const std::vector<float> state = {1.0f, 1.0f, 1.0f, 0.0f};
  ops::AdamWStep step;
  step.learning_rate = 0.1;
  step.weight_decay = 0.25;
  step.bias_correction1 = 1.0 - step.beta1;
  step.bias_correction2 = 1.0 - step.beta2;
  ops::adamw_step(ctx, step, upload(state), p, upload(zero), upload(zero), upload(zero));
  // Without a gradient a step is p (1 - lr decay); lr, decay, their product, the product with p and
  // the difference are rounded.
  std::vector<double> expected(start.begin(), start.end());
  for (double& x : expected) x *= 1.0 - 0.1 * 0.25;
  check.compare("p", ctx.read<float>(p), expected,
                [&](size_t i) { return 5.0 * ops::kF32Rounding * std::abs(expected[i]) + 1e-38; });
  return check.result();
}

}  // namespace

std::vector<ops::VerifyCase> training_cases() {
  std::vector<ops::VerifyCase> cases;
  for (Method method : {Method::kLora, Method::kQlora, Method::kFull}) {
    const std::string name(enum_name(method));
    cases.push_back({"training", name + ", within 100 steps",
                     [method](Context& ctx) { return loss_falls(ctx, method); }});
    cases.push_back({"training", name + ", gradients after step 1",
                     [method](Context& ctx) { return gradients_reach_all(ctx, method); }});
    if (method == Method::kFull) continue;
    cases.push_back({"training", name + ", frozen weights",
                     [method](Context& ctx) { return adapter_keeps_the_model(ctx, method); }});
  }
  for (const bool dora : {false, true}) {
    cases.push_back({"training", fmt::format("{}, gradients beside f32", dora ? "dora" : "lora"),
                     [dora](Context& ctx) { return follows_f32(ctx, dora); }});
  }
  cases.push_back({"training", "loss on the response alone", only_the_response_counts});
  cases.push_back({"training", "decoupled weight decay", decay_is_decoupled});
  return cases;
}

}  // namespace wgrad::train
