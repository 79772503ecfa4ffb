// For the attention kernels that bind row_begin.

// The first key that the query sees.
fn first_key(query: u32) -> u32 {
  let begin = max(row_begin[query], params.origin) - params.origin;
  let end = query + params.query_offset + 1u;
  if (params.window > 0u && end > params.window) { return max(begin, end - params.window); }
  return begin;
}
