// y[i, row] = alpha sum_k x[i, k] W[row, k] (+ bias[row]) (+ y[i, row]) for few rows of x, in memory
// order of the weight, which is read once.
//
// The prelude declares kRows (rows of x, at most 8), the weight's bindings and
//   weight8(row, unit)  elements 8 unit .. 8 unit + 7 of a row
//   prepare(t)          fills workgroup memory that weight8 needs
//   kGroupRows, kUnitStep, local_row(t), first_unit(t), invocation(row, part)
// that say which units of which of the workgroup's rows an invocation sums.
//
// x     f32 [kRows, k] in vec4s
// bias  f32 [n], read where has_bias
// y     f32, rows ldy apart; set, or added to where accumulate
// A workgroup computes kGroupRows columns of y; partial sums are added in a fixed order.
// Equal to cpu::matmul (kNT).

const kParts = 256u / kGroupRows;
var<workgroup> partial: array<f32, 256u * kRows>;

@compute @workgroup_size(256)
fn matvec(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
          @builtin(local_invocation_index) t: u32) {
  prepare(t);
  let base = (wg.x + wg.y * grid.x) * kGroupRows;
  let row = min(base + local_row(t), p.n - 1u);
  var acc: array<f32, kRows>;
  for (var unit = first_unit(t); unit < p.units; unit += kUnitStep) {
    let w = weight8(row, unit);
    for (var i = 0u; i < kRows; i++) {
      let at = p.x_offset + i * p.ldx + unit * 2u;
      acc[i] += dot(w[0], x[at]) + dot(w[1], x[at + 1u]);
    }
  }
  for (var i = 0u; i < kRows; i++) {
    partial[i * 256u + t] = acc[i];
  }
  workgroupBarrier();
  if (t >= kGroupRows * kRows) {
    return;
  }
  let local = t % kGroupRows;
  let i = t / kGroupRows;
  if (base + local >= p.n) {
    return;
  }
  var sum = 0.0;
  for (var part = 0u; part < kParts; part++) {
    sum += partial[i * 256u + invocation(local, part)];
  }
  var value = p.alpha * sum;
  if (p.has_bias != 0u) {
    value += bias[p.bias_offset + base + local];
  }
  let g = p.y_offset + i * p.ldy + base + local;
  if (p.accumulate != 0u) {
    value += y[g];
  }
  y[g] = value;
}
