//! One step of the cold start: cross-entropy on targets, Muon on block matrices, AdamW on the rest,
//! and an aid that only training has.

use rand::Rng as _;
use tch::{Kind, Reduction, Tensor};

use crate::engine::{
    EngineError, SupervisedBatch, SupervisedPart, SupervisedReport, SupervisedRow,
};
use crate::random::{self, Domain};

use super::attention::attention;
use super::batch::{check_ids, check_length, chunks, padded, picked};
use super::decoder::{Decoder, Hidden};
use super::gradients::{Gradients, forget};
use super::muon::Muon;
use super::optimizer::{AdamKnobs, AdamW};
use super::weights::Parameter;

/// How many tokens back the aid must name.
const AID_REACH: usize = 3;
/// The aid looks at one position in this many.
const AID_STRIDE: u32 = 4;
const AID_NORM_EPS: f64 = f32::EPSILON as f64;
const BETA1: f64 = 0.9;
const EPS: f64 = 1e-8;

/// Optimizers of the cold start.
#[derive(Default)]
pub(super) struct ColdStart {
    pub muon: Muon,
    /// Embedding, norms and biases.
    pub adam: AdamW,
    pub aid: Option<Aid>,
}

/// Linear probes of the first block's output that must name the tokens 1, 2, 3 back. They make the
/// first block learn where the previous tokens are, which copying needs and which a standard
/// decoder otherwise finds only after a long plateau. Dropped after the cold start.
pub(super) struct Aid {
    /// One [hidden, hidden] matrix for each token back.
    pub probes: Vec<Parameter>,
    pub adam: AdamW,
}

impl Aid {
    /// New probes, uniform in ±1/sqrt(hidden).
    fn new(decoder: &Decoder, seed: u64) -> Self {
        let width = decoder.shape.settings.hidden_size;
        let bound = 1.0 / (width as f64).sqrt();
        let probe = |number: usize| {
            let mut rng = random::stream(seed, Domain::Weights, number as u32, 1, 0);
            let values: Vec<f32> = (0..width * width)
                .map(|_| {
                    let unit = (rng.next_u64() >> 11) as f64 / 9_007_199_254_740_992.0;
                    (bound * (2.0 * unit - 1.0)) as f32
                })
                .collect();
            Tensor::from_slice(&values)
                .view([width, width])
                .to_device(decoder.device)
        };
        Self::assemble((0..AID_REACH).map(probe).collect(), AdamW::default())
    }

    /// From saved probes and their optimizer.
    pub fn assemble(probes: Vec<Tensor>, adam: AdamW) -> Self {
        let probes = probes
            .into_iter()
            .enumerate()
            .map(|(number, probe)| Parameter {
                name: format!("aid.{number}"),
                tensor: probe.detach().set_requires_grad(true),
                matrices: None,
                decays: true,
            })
            .collect();
        Self { probes, adam }
    }

    /// Mean cross-entropy of the probes at `looks`: (index into [batch * time], tokens back).
    fn loss(
        &self,
        decoder: &Decoder,
        hidden: &Hidden,
        looks: &[(i64, [i64; AID_REACH])],
    ) -> Tensor {
        let index: Vec<i64> = looks.iter().map(|look| look.0).collect();
        let seen = picked(&hidden.first_block, &index).rms_norm(
            [decoder.shape.settings.hidden_size],
            None::<&Tensor>,
            AID_NORM_EPS,
        );
        let named: Vec<Tensor> = self
            .probes
            .iter()
            .map(|probe| seen.linear(&probe.tensor, None::<&Tensor>))
            .collect();
        let targets: Vec<i64> = (0..AID_REACH)
            .flat_map(|back| looks.iter().map(move |look| look.1[back]))
            .collect();
        let targets = Tensor::from_slice(&targets).to_device(decoder.device);
        decoder
            .logits(&Tensor::cat(&named, 0))
            .cross_entropy_for_logits(&targets)
    }
}

/// Positions of a row that the aid looks at, from the random stream of (step, part, row).
fn looked_at(row: &SupervisedRow, seed: u64, step: u32, part: u32, number: u32) -> Vec<usize> {
    let mut rng = random::stream(seed, Domain::Aids, step, part, number);
    (AID_REACH..row.ids.len() - 1)
        .filter(|_| rng.next_u32().is_multiple_of(AID_STRIDE))
        .collect()
}

/// What a part's passes have summed up, still on the device.
struct PartSums {
    cross_entropy: Tensor,
    correct: Tensor,
    aid: Tensor,
}

/// One step. See [`crate::engine::Engine::supervise`].
pub(super) fn supervise(
    decoder: &Decoder,
    state: &mut ColdStart,
    gradients: &mut Gradients,
    batch: &SupervisedBatch,
) -> Result<SupervisedReport, EngineError> {
    check(decoder, batch)?;
    let aided = batch.aid_weight > 0.0;
    if aided && state.aid.is_none() {
        state.aid = Some(Aid::new(decoder, batch.address.0));
    }
    let aid = state.aid.as_mut().filter(|_| aided);
    let parameters = decoder.parameters();
    forget(&parameters);
    if let Some(aid) = &aid {
        forget(&aid.probes);
    }

    let mut report = SupervisedReport::default();
    let filled = batch.parts.iter().filter(|p| !p.rows.is_empty()).count() as f64;
    for (number, part) in batch.parts.iter().enumerate() {
        if part.rows.is_empty() {
            continue;
        }
        let aid_weight = f64::from(batch.aid_weight) / filled;
        let targets = part
            .rows
            .iter()
            .flat_map(|r| &r.mask)
            .filter(|m| **m)
            .count();
        let sums = backward(
            decoder,
            aid.as_deref(),
            part,
            number as u32,
            batch,
            aid_weight,
        );
        let per_target = 1.0 / (targets.max(1) as f64);
        let cross_entropy = sums.cross_entropy.double_value(&[]);
        report.aid_loss += sums.aid.double_value(&[]) / filled;
        report.parts.push((
            part.name.clone(),
            cross_entropy,
            sums.correct.double_value(&[]) * per_target,
        ));
        report.tokens += part.rows.iter().map(|r| r.ids.len() as u64).sum::<u64>();
    }
    report.grad_norm = gradients.pass(&parameters, f64::from(batch.grad_clip));
    let losses = report.parts.iter().map(|part| part.1).sum::<f64>() + report.aid_loss;
    if !(losses.is_finite() && report.grad_norm.is_finite()) {
        return Err(EngineError::NotFinite(format!(
            "supervised step {}: losses {:?}, aid {}, gradient norm {}; the weights are as before. \
             Lower the learning rates or look for broken examples",
            batch.address.1, report.parts, report.aid_loss, report.grad_norm
        )));
    }

    let (matrices, rest): (Vec<&Parameter>, Vec<&Parameter>) =
        parameters.iter().partition(|p| p.matrices.is_some());
    let weight_decay = f64::from(batch.weight_decay);
    state
        .muon
        .step(&matrices, f64::from(batch.matrix_lr), weight_decay);
    let knobs = AdamKnobs {
        lr: f64::from(batch.other_lr),
        betas: (BETA1, f64::from(batch.beta2)),
        eps: EPS,
        weight_decay: 0.0,
    };
    state.adam.step(&rest, knobs);
    if let Some(aid) = aid {
        let knobs = AdamKnobs {
            lr: knobs.lr / 2.0,
            weight_decay,
            ..knobs
        };
        aid.adam.step(&aid.probes.iter().collect::<Vec<_>>(), knobs);
        forget(&aid.probes);
    }
    forget(&parameters);
    Ok(report)
}

/// Leaves the gradients of one part: weight * mean cross-entropy + aid_weight * mean aid loss.
fn backward(
    decoder: &Decoder,
    aid: Option<&Aid>,
    part: &SupervisedPart,
    number: u32,
    batch: &SupervisedBatch,
    aid_weight: f64,
) -> PartSums {
    let device = decoder.device;
    let zero = || Tensor::zeros([1], (Kind::Double, device)).squeeze();
    let mut sums = PartSums {
        cross_entropy: zero(),
        correct: zero(),
        aid: zero(),
    };
    let (seed, step) = batch.address;
    let looks: Vec<Vec<usize>> = part
        .rows
        .iter()
        .enumerate()
        .map(|(row, r)| match aid {
            Some(_) => looked_at(r, seed, step, number, row as u32),
            None => Vec::new(),
        })
        .collect();
    let all_looks = looks.iter().map(Vec::len).sum::<usize>() as f64;
    let all_targets = part
        .rows
        .iter()
        .flat_map(|r| &r.mask)
        .filter(|m| **m)
        .count() as f64;
    let lengths: Vec<usize> = part.rows.iter().map(|r| r.ids.len() - 1).collect();
    for chunk in chunks(&lengths, decoder.device) {
        let rows: Vec<&SupervisedRow> = chunk.iter().map(|&row| &part.rows[row]).collect();
        let inputs: Vec<&[u32]> = rows.iter().map(|r| &r.ids[..r.ids.len() - 1]).collect();
        let ids = padded(&inputs, device);
        let width = ids.size()[1];
        let positions = positions(&rows).map(|p| padded(&p, device));
        let (mut index, mut targets, mut looked) = (Vec::new(), Vec::new(), Vec::new());
        for (line, (&row, r)) in (0i64..).zip(chunk.iter().zip(&rows)) {
            for (at, _) in r.mask.iter().enumerate().filter(|(_, m)| **m) {
                index.push(line * width + at as i64 - 1);
                targets.push(i64::from(r.ids[at]));
            }
            for &at in &looks[row] {
                let back = std::array::from_fn(|k| i64::from(r.ids[at - k - 1]));
                looked.push((line * width + at as i64, back));
            }
        }
        let wanted = Tensor::from_slice(&index).to_device(device);
        let hidden = decoder.forward(&ids, positions.as_ref(), &wanted, |_, q, k, v| {
            attention(q, k, v, None)
        });
        let mut loss = Vec::new();
        if !index.is_empty() {
            let targets = Tensor::from_slice(&targets).to_device(device);
            let logits = decoder.logits(&hidden.last);
            let cross_entropy =
                logits.cross_entropy_loss(&targets, None::<&Tensor>, Reduction::Sum, -100, 0.0)
                    / all_targets;
            sums.cross_entropy += cross_entropy.detach();
            sums.correct += logits
                .argmax(-1, false)
                .eq_tensor(&targets)
                .sum(Kind::Double);
            loss.push(cross_entropy * f64::from(part.weight));
        }
        if let Some(aid) = aid.filter(|_| !looked.is_empty()) {
            let share = looked.len() as f64 / all_looks;
            let aid_loss = aid.loss(decoder, &hidden, &looked) * share;
            sums.aid += aid_loss.detach();
            loss.push(aid_loss * aid_weight);
        }
        if let Some(loss) = loss.into_iter().reduce(|a, b| a + b) {
            loss.backward();
        }
    }
    sums
}

/// The positions of the inputs, or none if all simply count up.
fn positions<'a>(rows: &[&'a SupervisedRow]) -> Option<Vec<&'a [u32]>> {
    let plain = |r: &SupervisedRow| r.positions.iter().enumerate().all(|(i, p)| i as u32 == *p);
    if rows.iter().all(|r| plain(r)) {
        return None;
    }
    Some(
        rows.iter()
            .map(|r| &r.positions[..r.ids.len() - 1])
            .collect(),
    )
}

fn check(decoder: &Decoder, batch: &SupervisedBatch) -> Result<(), EngineError> {
    let most = decoder.shape.settings.max_position_embeddings;
    for part in &batch.parts {
        for (number, row) in part.rows.iter().enumerate() {
            let what = format!("supervised row {number} of part {:?}", part.name);
            check_ids(&decoder.shape, &what, &row.ids)?;
            check_length(&what, "mask", row.mask.len(), row.ids.len())?;
            check_length(&what, "positions", row.positions.len(), row.ids.len())?;
            if row.mask.first() == Some(&true) || row.ids.len() < 2 {
                return Err(EngineError::BadRequest(format!(
                    "{what} must have at least 2 ids, and its first id cannot be a target"
                )));
            }
            if let Some(p) = row.positions.iter().find(|&&p| i64::from(p) >= most) {
                return Err(EngineError::BadRequest(format!(
                    "{what} has position {p}, but positions must be below {most} \
                     (max_position_embeddings); use smaller gaps"
                )));
            }
        }
    }
    Ok(())
}
