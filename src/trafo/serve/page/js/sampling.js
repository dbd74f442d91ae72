// Logits -> probabilities, as the server samples: temperature, top-k, top-p, min-p, in this order.

/** Softmax in float64. */
export function softmax(logits) {
  let top = -Infinity;
  for (const logit of logits) if (logit > top) top = logit;
  const out = new Float64Array(logits.length);
  let sum = 0;
  for (let i = 0; i < logits.length; i++) sum += out[i] = Math.exp(logits[i] - top);
  for (let i = 0; i < out.length; i++) out[i] /= sum;
  return out;
}

/** Ids by logit, highest first. */
export function ranking(logits) {
  return Uint32Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b);
}

/** The distribution that is sampled from. `ranked` are the ids, likeliest first. */
export function reshaped(logits, ranked, { temperature, topK, topP, minP }) {
  if (temperature === 0) {
    const out = new Float64Array(logits.length);
    out[ranked[0]] = 1;
    return out;
  }
  const top = logits[ranked[0]]; // subtracted first: a tiny temperature must not overflow
  const scaled = Float64Array.from(logits, (logit) => (logit - top) / temperature);
  let kept = ranked.length;
  if (topK > 0 && topK < kept) {
    kept = topK;
    while (kept < ranked.length && scaled[ranked[kept]] === scaled[ranked[topK - 1]]) kept++;
  }
  if (topP < 1) kept = nucleus(scaled, ranked, kept, topP);
  if (minP > 0) {
    const least = scaled[ranked[0]] + Math.log(minP);
    while (kept > 1 && scaled[ranked[kept - 1]] < least) kept--;
  }
  const filtered = new Float64Array(logits.length).fill(-Infinity);
  for (let rank = 0; rank < kept; rank++) filtered[ranked[rank]] = scaled[ranked[rank]];
  return softmax(filtered);
}

/** How many of the likeliest tokens hold the total probability p, at least one. */
function nucleus(scaled, ranked, kept, p) {
  let sum = 0;
  for (let rank = 0; rank < kept; rank++) sum += Math.exp(scaled[ranked[rank]] - scaled[ranked[0]]);
  let before = 0;
  for (let rank = 0; rank < kept; rank++) {
    if (rank > 0 && before / sum >= p) return rank;
    before += Math.exp(scaled[ranked[rank]] - scaled[ranked[0]]);
  }
  return kept;
}

/** Entropy in bits. */
export function entropy(probabilities) {
  let sum = 0;
  for (const p of probabilities) if (p > 0) sum -= p * Math.log2(p);
  return sum;
}
