#include "model/rope_tables.h"

#include <algorithm>

namespace wgrad::model {

RopeTable::RopeTable(Context& ctx, const RopeConfig& rope, int64_t positions, int64_t most)
    : rope_(rope), most_(most) {
  if (positions <= 0) return;
  Sections sections;
  const int64_t longest = std::min(positions, most);
  want(sections, std::min(longest, std::max<int64_t>(rope.original_max_positions, 1)), longest);
  // Each length beyond has a section of its own under dynamic scaling; they come with the rows.
  if (rope.scaling != RopeScaling::kDynamic) want(sections, longest, longest);
  build(ctx, std::move(sections));
}

void RopeTable::want(Sections& sections, int64_t row_length, int64_t positions) const {
  const int64_t regime = rope_.regime(row_length);
  if (regime == 0 && rope_.regime(most_) != 0) {
    positions = std::min(positions, rope_.original_max_positions);
  }
  Section& section = sections[regime];
  section.row_length = row_length;
  section.positions = std::max(section.positions, positions);
}

void RopeTable::build(Context& ctx, Sections sections) {
  table_ = Tensor();
  std::vector<float> values;
  int64_t first = 0;
  for (auto& [regime, section] : sections) {
    section.first = first;
    first += section.positions;
    append_rope_table(rope_, section.row_length, section.positions, values);
  }
  sections_ = std::move(sections);
  table_ =
      ctx.make<float>({first, rope_.rotary_dim / 2, 2}, DType::kF32, values, "model/rotary table");
}

RopeView RopeTable::cover(Context& ctx, const Batch& batch) {
  Sections needed;
  for (size_t t = 0; t < batch.ids.size(); ++t) {
    const int64_t length = int64_t{batch.row_end[t]} - int64_t{batch.row_begin[t]};
    want(needed, length, int64_t{batch.positions[t]} + 1);
  }
  const bool covered = std::all_of(needed.begin(), needed.end(), [&](const auto& entry) {
    const auto have = sections_.find(entry.first);
    return have != sections_.end() && have->second.positions >= entry.second.positions;
  });
  if (!covered) {
    constexpr int64_t kFewest = 256;
    Sections grown;
    for (const auto& [regime, section] : needed) {
      const auto have = sections_.find(regime);
      const int64_t before = have == sections_.end() ? 0 : have->second.positions;
      const bool own = rope_.scaling == RopeScaling::kDynamic && regime != 0;
      const int64_t room =
          own ? section.row_length
              : std::min(most_, std::max({section.positions, 2 * before, kFewest}));
      want(grown, section.row_length, std::max(room, before));
    }
    // What shorter rows have stays; under dynamic scaling the other lengths go.
    for (const auto& [regime, section] : sections_) {
      const bool own = rope_.scaling == RopeScaling::kDynamic && regime != 0;
      if (!own) want(grown, section.row_length, section.positions);
    }
    build(ctx, std::move(grown));
  }
  if (sections_.size() == 1) return {table_, batch.device_positions};
  std::vector<uint32_t> places = batch.positions;
  for (size_t t = 0; t < places.size(); ++t) {
    const int64_t length = int64_t{batch.row_end[t]} - int64_t{batch.row_begin[t]};
    places[t] += static_cast<uint32_t>(sections_.at(rope_.regime(length)).first);
  }
  return {table_, ctx.make<uint32_t>({batch.tokens()}, DType::kU32, places, "batch/rotary places")};
}

}  // namespace wgrad::model
