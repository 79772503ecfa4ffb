// Prints what llama.cpp computes: for tools/check_llama_cpp.py, which compiles it.
//     llama_logits LIBRARIES MODEL ADAPTER|- IDS
// writes the logits of every position as f32 to standard output, the cache in f32 and nothing
// fused.

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

namespace {

void print_warnings(ggml_log_level level, const char* text, void*) {
  if (level >= GGML_LOG_LEVEL_WARN) std::fputs(text, stderr);
}

std::vector<llama_token> read_ids(const std::string& text) {
  std::vector<llama_token> ids;
  std::istringstream stream(text);
  for (std::string id; std::getline(stream, id, ',');) ids.push_back(std::stoi(id));
  return ids;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  llama_log_set(print_warnings, nullptr);
  ggml_backend_load_all_from_path(argv[1]);
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(argv[2], llama_model_default_params());
  if (model == nullptr) return 1;

  const std::vector<llama_token> ids = read_ids(argv[4]);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 256;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) return 1;
  if (const std::string path = argv[3]; path != "-") {
    llama_adapter_lora* adapter = llama_adapter_lora_init(model, path.c_str());
    float scale = 1.0f;
    if (adapter == nullptr || llama_set_adapters_lora(context, &adapter, 1, &scale) != 0) return 1;
  }

  llama_batch batch = llama_batch_init(static_cast<int32_t>(ids.size()), 0, 1);
  for (const llama_token id : ids) {
    const int32_t i = batch.n_tokens++;
    batch.token[i] = id;
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  if (llama_decode(context, batch) != 0) return 1;
  const auto words = static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
  for (int32_t i = 0; i < batch.n_tokens; ++i) {
    std::fwrite(llama_get_logits_ith(context, i), sizeof(float), words, stdout);
  }
}
