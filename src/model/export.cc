#include "model/export.h"

#include <fmt/format.h>

#include <optional>

#include "io/gguf.h"
#include "io/gguf_names.h"
#include "io/gguf_writer.h"
#include "model/adapter.h"
#include "model/gguf_metadata.h"
#include "model/gguf_tensor.h"
#include "model/merge.h"
#include "model/model.h"
#include "text/gguf_export.h"
#include "wgrad/error.h"

namespace wgrad::model {

namespace fs = std::filesystem;

void refuse_existing(const fs::path& out) {
  std::error_code error;
  if (fs::symlink_status(out, error).type() == fs::file_type::not_found) return;
  throw input_error(out.string(), "this file exists", "a new name", "choose another --out");
}

namespace {

/// The file type that most of a Hugging Face base's weights have when they are kept.
GgufType type_of_base(const ModelConfig& config, const io::TensorSource& source) {
  switch (source.get(config.table_name() + ".weight").type) {
    case io::FileType::kF16:
      return GgufType::kF16;
    case io::FileType::kBF16:
      return GgufType::kBF16;
    default:
      return GgufType::kF32;
  }
}

class Exporter {
 public:
  Exporter(const fs::path& base, const fs::path& adapter, GgufType type)
      : base_(base), config_(read_config(base)), source_(io::open_checkpoint(base)), type_(type) {
    for (const Parameters::Spec& spec : checkpoint_tensors(config_)) {
      source_->get(spec.name, spec.shape);
    }
    architecture_ = &gguf_architecture(config_, base.string());
    if (adapter.empty()) return;
    context_ = Context::cpu({});
    adapter_.emplace(Adapter::load(*context_, config_, adapter, source_.get()));
    edits_ = adapter_edits(*context_, config_, *adapter_);
    if (!edits_->unties()) return;
    throw input_error(adapter.string(),
                      "parts the output layer from the embedding that it is tied to",
                      "adapters of the blocks' layers", "`wgrad merge`, then export that folder");
  }

  ExportSummary write(const fs::path& out) {
    if (fs::is_directory(base_)) {
      if (type_ == GgufType::kKeep) type_ = type_of_base(config_, *source_);
      types_.emplace(type_, config_.layers, config_.tied_embeddings);
      add_folder();
    } else {
      types_.emplace(type_, config_.layers, config_.tied_embeddings);
      add_gguf();
    }
    summary_.bytes = writer_.file_size();
    writer_.write(out);
    for (std::string& note : types_->notes()) summary_.notes.push_back(std::move(note));
    if (quantised_again_ > 0) {
      summary_.notes.push_back(fmt::format(
          "quantised tensors that the adapter changes are quantised again, which can cost "
          "what it adds: {}; --type {} keeps more",
          quantised_again_, type_ == GgufType::kQ8_0 ? "f16" : "q8_0 or f16"));
    }
    return std::move(summary_);
  }

 private:
  /// Norms that multiply by 1 + w are stored as that.
  float offset_of(std::string_view name) const {
    return name.ends_with("norm.weight") ? config_.norm_offset : 0.0f;
  }

  bool edited(const std::string& name) const { return edits_ && edits_->changes(name); }

  void add(std::string name, const io::TensorView& view, io::FileType type) {
    CheckpointEdits* edits = edited(view.name) ? edits_.get() : nullptr;
    if (edits != nullptr && io::is_quantized(type) && io::is_quantized(view.type)) {
      ++quantised_again_;
    }
    writer_.tensor(
        gguf_entry(std::move(name), {.source = source_.get(),
                                     .view = &view,
                                     .edits = edits,
                                     .type = type,
                                     .head = architecture_->reordered_head(config_, view.name),
                                     .offset = offset_of(view.name)}));
  }

  // A Hugging Face folder

  void add_folder() {
    writer_.text("general.architecture", architecture_->name);
    writer_.text("general.type", "model");
    const fs::path folder = fs::weakly_canonical(base_);
    writer_.text("general.name", folder.filename().string());
    writer_.number("general.file_type", static_cast<uint32_t>(types_->file_type()));
    write_architecture(config_, *architecture_, writer_, summary_.notes);
    const text::TextAssets assets = text::load_from_folder(base_);
    text::GgufTokenizer tokenizer =
        text::gguf_tokenizer_of_folder(base_, assets, config_.vocab_size);
    write_tokenizer(tokenizer.parts, writer_);
    for (std::string& note : tokenizer.notes) summary_.notes.push_back(std::move(note));
    writer_.number("general.quantization_version", kQuantizationVersion);

    divisors_ = rope_divisors(config_);
    for (const auto& [name, values] : divisors_) {
      writer_.tensor(io::tensor_from_bytes(std::string(name), io::FileType::kF32,
                                           {static_cast<int64_t>(values.size())},
                                           std::as_bytes(std::span<const float>(values))));
    }
    for (const Parameters::Spec& spec : checkpoint_tensors(config_)) {
      const auto name = io::gguf_tensor_name(spec.name, architecture_->name);
      if (!name) {
        throw input_error(source_->get(spec.name).where, "this tensor has no name in GGUF",
                          "the tensors of a plain decoder", "use `wgrad merge`");
      }
      const io::TensorView& view = source_->get(spec.name);
      add(*name, view, types_->choose(*name, view));
    }
  }

  // A .gguf file

  void add_gguf() {
    file_.emplace(io::GgufFile::open(base_));
    if (type_ != GgufType::kKeep) {
      writer_.number("general.file_type", static_cast<uint32_t>(types_->file_type()));
    }
    for (const std::string& key : file_->keys()) {
      if (key != "general.alignment") writer_.raw(key, file_->raw(key));
    }
    writer_.number("general.quantization_version", kQuantizationVersion);
    for (const io::TensorView& stored : file_->tensors()) {
      const auto name = io::hf_tensor_name(stored.name, architecture_->name);
      const io::TensorView* view = name ? source_->find(*name) : nullptr;
      const io::FileType type = types_->choose(stored.name, stored);
      const bool stays = view == nullptr || (!edited(*name) && type == stored.type);
      if (stays) {
        writer_.tensor(io::tensor_from_bytes(stored.name, stored.type, stored.shape, stored.bytes));
      } else {
        add(stored.name, *view, type);
      }
    }
  }

  fs::path base_;
  ModelConfig config_;
  std::unique_ptr<io::TensorSource> source_;
  GgufType type_;
  const GgufArchitecture* architecture_ = nullptr;
  std::unique_ptr<Context> context_;
  std::optional<Adapter> adapter_;
  std::unique_ptr<CheckpointEdits> edits_;
  std::optional<GgufTypes> types_;
  std::optional<io::GgufFile> file_;
  std::vector<RopeDivisors> divisors_;
  io::GgufWriter writer_;
  int quantised_again_ = 0;
  ExportSummary summary_;
};

}  // namespace

ExportSummary export_gguf(const fs::path& base, const fs::path& adapter, GgufType type,
                          const fs::path& out) {
  refuse_existing(out);
  return Exporter(base, adapter, type).write(out);
}

}  // namespace wgrad::model
