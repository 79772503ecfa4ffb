#include "data/model_text.h"

#include <filesystem>

#include "io/gguf.h"
#include "text/gguf_parts.h"

namespace wgrad::data {

text::TextAssets load_model_text(const std::string& model) {
  const std::filesystem::path path(model);
  if (path.extension() != ".gguf") return text::load_from_folder(path);
  const io::GgufFile file = io::GgufFile::open(path);
  return text::load_from_gguf(text::gguf_tokenizer_parts(file), model);
}

}  // namespace wgrad::data
