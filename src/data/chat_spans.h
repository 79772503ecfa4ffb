#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "data/format.h"
#include "text/text_assets.h"

namespace wgrad::data {

/// Bytes [begin, end) of a rendered conversation that the model would have had to generate.
struct Span {
  size_t begin = 0, end = 0;
};

struct RenderedChat {
  std::string text;
  std::vector<Span> counted;  ///< one an assistant turn that counts, in order
};

/// Renders the whole conversation at once and finds what each assistant turn generates: from where
/// the generation prompt before it ends to the first end-of-turn token after it, included.
///
/// Where the messages before a turn render to a prefix of the whole, the prefix (with its
/// generation prompt) is where the turn begins. Else a message's place is found by rendering once
/// more with its content replaced by a mark: what stands before and after the mark must stand in
/// the real text too. End-of-turn tokens are the model's stop tokens and the special token that
/// the template puts after an assistant's content. An input error says why where none of it works.
RenderedChat render_chat(const Conversation& chat, const text::TextAssets& assets,
                         std::string_view where);

/// The text alone, of any conversation that the template takes.
std::string render_text(const Conversation& chat, const text::TextAssets& assets,
                        std::string_view where);

}  // namespace wgrad::data
