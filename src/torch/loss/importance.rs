//! Weights between the engine that sampled and the learner that trains.

use tch::{Kind, Tensor};

use crate::engine::Mismatch;
use crate::experiment::{Importance, ImportanceLevel};

/// Log ratios are kept within this, either side, before the exponential.
const LOG_RATIO_BOUND: f64 = 20.0;
/// What the peers add to counts; kept so that the figures are comparable.
const SLACK: f64 = 1e-8;

/// Bounds of the weights, in double precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// What a weight belongs to.
    pub level: ImportanceLevel,
    /// Whether weights outside the bounds become 0; else those above are cut.
    pub masks: bool,
    /// Lower bound; plays a part if `masks`.
    pub lower: f64,
    /// Upper bound.
    pub upper: f64,
    /// A row with a trained token whose ratio is below this weighs 0; 0: off.
    pub veto: f64,
}

impl Bounds {
    /// Those of the experiment; `None` if weights are off.
    #[must_use]
    pub fn of(setting: Importance) -> Option<Self> {
        let (bounds, masks) = match setting {
            Importance::Off => return None,
            Importance::Truncate(bounds) => (bounds, false),
            Importance::Mask(bounds) => (bounds, true),
        };
        let upper = f64::from(bounds.upper);
        Some(Self {
            level: bounds.level,
            masks,
            lower: match bounds.lower {
                0.0 => 1.0 / upper,
                lower => f64::from(lower),
            },
            upper,
            veto: f64::from(bounds.veto),
        })
    }
}

/// Importance weights [rows, time] and what they say about the mismatch.
///
/// With r = `learner` - `engine` (log-probs of the sampled tokens, [rows, time]) a token's weight is
/// exp(r); at level `sequence` exp(sum of r over the row's trained tokens) and at level `geometric`
/// exp(their mean), for every token of the row; r is kept within 20 either side. `truncate` cuts
/// weights to the upper bound (Ionides, 2008; TIS of Yao et al., 2025), `mask` makes weights outside
/// the bounds 0, and a row with a trained token of exp(r) < veto weighs 0 altogether. Weights carry
/// no gradient and are 0 where `mask` is. The definitions are those of verl's mismatch helper.
pub fn importance(
    bounds: &Bounds,
    learner: &Tensor,
    engine: &Tensor,
    mask: &Tensor,
) -> (Tensor, Mismatch) {
    let kind = learner.kind();
    let on = mask.ne(0.0);
    let mask = on.to_kind(kind);
    let pick = |x: &Tensor| x.detach().where_self(&on, &x.zeros_like());
    let (learner, engine) = (pick(learner), pick(engine));
    let ratio = &learner - &engine;
    let raw = raw_weights(bounds.level, &ratio, &mask);
    let inside = raw
        .ge(bounds.lower)
        .logical_and(&raw.le(bounds.upper))
        .to_kind(kind);
    let kept = veto(bounds, &ratio, &on, kind);
    let mut mismatch = describe(&raw, bounds, &learner, &engine, &mask);
    mismatch.veto_share = 1.0 - kept.mean(kind).double_value(&[]);
    let weights = if bounds.masks {
        let outside = inside.ones_like() - &inside;
        mismatch.masked_share = mean(&outside, &mask);
        mismatch.masked_rows = (&outside * &mask)
            .sum_dim_intlist(-1, false, kind)
            .gt(0.0)
            .to_kind(kind)
            .mean(kind)
            .double_value(&[]);
        raw * inside
    } else {
        raw.clamp_max(bounds.upper)
    };
    (weights * kept * mask, mismatch)
}

fn raw_weights(level: ImportanceLevel, ratio: &Tensor, mask: &Tensor) -> Tensor {
    let rows = || ratio.sum_dim_intlist(-1, true, ratio.kind());
    let lengths = || mask.sum_dim_intlist(-1, true, mask.kind()) + SLACK;
    let log = match level {
        ImportanceLevel::Token => ratio.copy(),
        ImportanceLevel::Sequence => rows().expand_as(ratio),
        ImportanceLevel::Geometric => (rows() / lengths()).expand_as(ratio),
    };
    log.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()
}

/// [rows, 1]: 0 where a trained token's ratio is below the veto.
fn veto(bounds: &Bounds, ratio: &Tensor, on: &Tensor, kind: Kind) -> Tensor {
    // ln(0) is -inf: nothing is below it.
    let floor = bounds.veto.ln();
    let worst = ratio.lt(floor).logical_and(on).any_dim(-1, true);
    worst.logical_not().to_kind(kind)
}

fn mean(values: &Tensor, mask: &Tensor) -> f64 {
    let kind = values.kind();
    let count = mask.sum(kind).double_value(&[]) + SLACK;
    (values * mask).sum(kind).double_value(&[]) / count
}

fn describe(
    raw: &Tensor,
    bounds: &Bounds,
    learner: &Tensor,
    engine: &Tensor,
    mask: &Tensor,
) -> Mismatch {
    let kind = raw.kind();
    let near = raw.clamp(bounds.lower, bounds.upper);
    let scaled = &near / (mean(&near, mask) + SLACK);
    let ratio = learner - engine;
    let of_rows = |x: &Tensor| {
        (x * mask).sum_dim_intlist(-1, false, kind)
            / (mask.sum_dim_intlist(-1, false, kind) + SLACK)
    };
    let perplexity = |x: &Tensor| (-of_rows(x)).exp().mean(kind).double_value(&[]);
    Mismatch {
        weight_mean: mean(raw, mask),
        effective_share: 1.0 / mean(&scaled.square(), mask),
        veto_share: 0.0,
        masked_share: 0.0,
        masked_rows: 0.0,
        kl: -mean(&ratio, mask),
        k3: mean(&(ratio.exp() - &ratio - 1.0), mask),
        learner_perplexity: perplexity(learner),
        engine_perplexity: perplexity(engine),
        log_perplexity_gap: (of_rows(engine) - of_rows(learner))
            .mean(kind)
            .double_value(&[]),
    }
}
