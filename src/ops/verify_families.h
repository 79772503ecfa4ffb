#pragma once

#include "ops/verify.h"

/// One function a family; verify.cc lists them.
namespace wgrad::ops {

void add_norm_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases);
void add_rope_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases);
void add_elementwise_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases);
void add_dropout_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases);
void add_embedding_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases);
void add_loss_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases);
void add_optimizer_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases);
void add_matmul_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases);
void add_attention_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases);
void add_nf4_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases);
void add_exported_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases);
void add_linear_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases);
void add_quantise_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases);
void add_lora_matrix_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases);
void add_token_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases);
void add_gated_pack_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases);
void add_dora_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases);

}  // namespace wgrad::ops
