//! Log-probs of trunks and of the branches that hang on them, in one forward pass each.

use std::collections::BTreeMap;

use tch::{Kind, Tensor};

use crate::engine::{EngineError, ScoreRequest, Scored, Weights};
use crate::trajectory::TokenId;

use super::batch::{check_ids, check_temperature, chunks, heat, padded, picked};
use super::decoder::{Decoder, attention};
use super::state::TrainingState;

/// Most logits that are held at once.
const LOGITS: usize = 1 << 26;

/// What decides the result of a request.
type Content<'a> = (&'a [TokenId], bool, Vec<(u32, &'a [TokenId], u32)>, u32);

/// Trunk and branches laid one after the other.
struct Layout {
    ids: Vec<u32>,
    positions: Vec<u32>,
    /// Of each branch: where it begins, where it ends, how much of the trunk it sees.
    branches: Vec<(usize, usize, usize)>,
    /// (row of the hidden state that predicts, id that is predicted), in the order of the reply.
    wanted: Vec<(usize, TokenId)>,
}

/// See [`crate::engine::Engine::score`]: every request under the weights that it names.
pub(super) fn score_under(
    policy: &Decoder,
    copies: &TrainingState,
    requests: &[ScoreRequest],
) -> Result<Vec<Scored>, EngineError> {
    if requests.iter().all(|of| of.under == Weights::Policy) {
        return score(policy, requests);
    }
    let mut scored: Vec<Option<Scored>> = vec![None; requests.len()];
    for under in [Weights::Policy, Weights::Reference, Weights::Average] {
        let (places, asked): (Vec<usize>, Vec<ScoreRequest>) = requests
            .iter()
            .enumerate()
            .filter(|(_, request)| request.under == under)
            .map(|(place, request)| (place, request.clone()))
            .unzip();
        let Some(first) = asked.first() else {
            continue;
        };
        let (decoder, what) = match under {
            Weights::Policy => (Some(policy), ""),
            Weights::Reference => (
                copies.reference.as_ref(),
                "the reference policy is asked for, but none was frozen",
            ),
            Weights::Average => (
                copies.average.as_ref(),
                "the average policy is asked for, but none was begun",
            ),
        };
        let missing =
            || EngineError::BadRequest(format!("scoring trajectory {}: {what}", first.id));
        let decoder = decoder.ok_or_else(missing)?;
        for (place, reply) in places.into_iter().zip(score(decoder, &asked)?) {
            scored[place] = Some(reply);
        }
    }
    Ok(scored.into_iter().flatten().collect())
}

/// Equal requests are computed once.
fn score(decoder: &Decoder, requests: &[ScoreRequest]) -> Result<Vec<Scored>, EngineError> {
    for request in requests {
        check(decoder, request)?;
    }
    let mut first_of = BTreeMap::<Content<'_>, usize>::new();
    let mut distinct: Vec<&ScoreRequest> = Vec::new();
    let source: Vec<usize> = requests
        .iter()
        .map(|request| {
            *first_of.entry(content(request)).or_insert_with(|| {
                distinct.push(request);
                distinct.len() - 1
            })
        })
        .collect();
    let layouts: Vec<Layout> = distinct.iter().map(|request| lay_out(request)).collect();
    let mut scored = vec![Vec::new(); distinct.len()];
    let lengths: Vec<usize> = layouts.iter().map(|layout| layout.ids.len()).collect();
    let _guard = tch::no_grad_guard();
    for chunk in chunks(&lengths, decoder.device) {
        let rows: Vec<&Layout> = chunk.iter().map(|&row| &layouts[row]).collect();
        let temperatures: Vec<f32> = chunk
            .iter()
            .map(|&row| heat(distinct[row].temperature))
            .collect();
        let mut logprobs = forward(decoder, &rows, &temperatures).into_iter();
        for &row in &chunk {
            scored[row] = logprobs.by_ref().take(layouts[row].wanted.len()).collect();
        }
    }
    let replies = requests.iter().zip(source);
    Ok(replies
        .map(|(request, row)| reply(request, &scored[row]))
        .collect())
}

/// Log-probs of everything wanted of these rows, one row after the other.
fn forward(decoder: &Decoder, rows: &[&Layout], temperatures: &[f32]) -> Vec<f32> {
    let device = decoder.device;
    let ids = padded(
        &rows.iter().map(|row| &row.ids[..]).collect::<Vec<_>>(),
        device,
    );
    let width = ids.size()[1];
    let branched = rows.iter().any(|row| !row.branches.is_empty());
    let (positions, mask) = if branched {
        let positions: Vec<&[u32]> = rows.iter().map(|row| &row.positions[..]).collect();
        (
            Some(padded(&positions, device)),
            Some(block_mask(rows, width).to_device(device)),
        )
    } else {
        (None, None)
    };
    let hidden = decoder.forward(&ids, positions.as_ref(), |_, q, k, v| {
        attention(q, k, v, mask.as_ref())
    });
    let (mut index, mut targets, mut heats) = (Vec::new(), Vec::new(), Vec::new());
    for ((line, row), &temperature) in (0i64..).zip(rows).zip(temperatures) {
        for &(at, id) in &row.wanted {
            index.push(line * width + at as i64);
            targets.push(i64::from(id));
            heats.push(temperature);
        }
    }
    if index.is_empty() {
        return Vec::new();
    }
    // A large vocabulary is gone through in pieces, so that its logits fit into memory.
    let piece = (LOGITS / decoder.shape.settings.vocab_size.max(1) as usize).max(1);
    let mut logprobs = Vec::with_capacity(index.len());
    let pieces = index.chunks(piece).zip(targets.chunks(piece));
    for ((index, targets), heats) in pieces.zip(heats.chunks(piece)) {
        let mut logits = decoder.logits(&picked(&hidden.last, index));
        if heats.iter().any(|&t| t != 1.0) {
            logits /= Tensor::from_slice(heats).unsqueeze(1).to_device(device);
        }
        let targets = Tensor::from_slice(targets).unsqueeze(1).to_device(device);
        let scored = logits
            .log_softmax(-1, None::<Kind>)
            .gather(1, &targets, false);
        logprobs.extend(host(&scored.squeeze_dim(1)));
    }
    logprobs
}

/// A float tensor as a list.
pub(super) fn host(tensor: &Tensor) -> Vec<f32> {
    let tensor = tensor.detach().to_kind(Kind::Float).contiguous();
    let mut values = vec![0f32; tensor.numel()];
    tensor.copy_data(&mut values, tensor.numel());
    values
}

/// [rows, 1, width, width]: 0 where a token sees another, -inf elsewhere. Branches do not see each
/// other, nor the trunk beyond their place.
fn block_mask(rows: &[&Layout], width: i64) -> Tensor {
    let causal = Tensor::full([width, width], f64::NEG_INFINITY, tch::kind::FLOAT_CPU).triu(1);
    let mask = causal.repeat([rows.len() as i64, 1, 1, 1]);
    for (line, row) in (0i64..).zip(rows) {
        let square = mask.get(line).get(0);
        for &(start, end, sees) in &row.branches {
            let _ = square
                .narrow(0, start as i64, (end - start) as i64)
                .narrow(1, sees as i64, (start - sees) as i64)
                .fill_(f64::NEG_INFINITY);
        }
    }
    mask
}

fn lay_out(request: &ScoreRequest) -> Layout {
    let mut layout = Layout {
        ids: request.trunk.clone(),
        positions: (0..request.trunk.len() as u32).collect(),
        branches: Vec::new(),
        wanted: Vec::new(),
    };
    if request.score_trunk {
        let pairs = request.trunk.iter().skip(1).enumerate();
        layout.wanted.extend(pairs.map(|(at, &id)| (at, id)));
    }
    for branch in &request.branches {
        let start = layout.ids.len();
        layout.ids.extend(&branch.ids);
        layout
            .positions
            .extend((branch.at..).take(branch.ids.len()));
        layout
            .branches
            .push((start, layout.ids.len(), branch.at as usize));
        for (i, &id) in branch
            .ids
            .iter()
            .enumerate()
            .skip(branch.scored_from as usize)
        {
            // The first id of a branch is predicted by the last trunk id it sees.
            let predictor = if i == 0 {
                branch.at as usize - 1
            } else {
                start + i - 1
            };
            layout.wanted.push((predictor, id));
        }
    }
    layout
}

fn reply(request: &ScoreRequest, scored: &[f32]) -> Scored {
    let mut scored = scored.iter().copied();
    let mut trunk = Vec::new();
    if request.score_trunk {
        trunk.push(0.0);
        trunk.extend(scored.by_ref().take(request.trunk.len() - 1));
    }
    let branches = request.branches.iter().map(|branch| {
        let count = branch.ids.len() - branch.scored_from as usize;
        scored.by_ref().take(count).collect()
    });
    Scored {
        id: request.id,
        trunk,
        branches: branches.collect(),
    }
}

fn content(request: &ScoreRequest) -> Content<'_> {
    let branches = request.branches.iter();
    (
        &request.trunk,
        request.score_trunk,
        branches
            .map(|b| (b.at, &b.ids[..], b.scored_from))
            .collect(),
        request.temperature.to_bits(),
    )
}

fn check(decoder: &Decoder, request: &ScoreRequest) -> Result<(), EngineError> {
    let what = format!("scoring trajectory {}: the trunk", request.id);
    check_ids(&decoder.shape, &what, &request.trunk)?;
    check_temperature(&what, request.temperature)?;
    for (number, branch) in request.branches.iter().enumerate() {
        let what = format!("scoring trajectory {}: branch {number}", request.id);
        check_ids(&decoder.shape, &what, &branch.ids)?;
        let (at, length) = (branch.at as usize, request.trunk.len());
        if at == 0 || at > length {
            return Err(EngineError::BadRequest(format!(
                "{what} hangs at {at}, but must hang at 1 to {length}, the trunk's length"
            )));
        }
        if branch.scored_from as usize > branch.ids.len() {
            return Err(EngineError::BadRequest(format!(
                "{what} is scored from {}, but has {} ids",
                branch.scored_from,
                branch.ids.len()
            )));
        }
        let most = decoder.shape.settings.max_position_embeddings;
        if (at + branch.ids.len()) as i64 > most {
            return Err(EngineError::BadRequest(format!(
                "{what} ends at position {}, but positions end at {most} (max_position_embeddings)",
                at + branch.ids.len()
            )));
        }
    }
    Ok(())
}
