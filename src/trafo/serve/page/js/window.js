// The sliding window: what the model sees of a text that is longer than its context.

/** The newest ids, from where generation has them begin (trafo/generate/window.py). */
export function seen(ids, context) {
  const kept = Math.max(1, Math.floor(context / 2));
  const step = context + 1 - kept;
  return ids.slice(Math.ceil(Math.max(0, ids.length - context) / step) * step);
}
