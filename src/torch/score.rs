//! Log-probs of trunks and of the branches that hang on them. Each trunk with its branches is computed
//! once, and many of them stand in one packed row: nothing is padded. Branches read the trunk's blocks up
//! to their place, then their own.

use std::collections::BTreeMap;

use tch::{Kind, Tensor};

use crate::engine::{EngineError, ScoreRequest, Scored, Weights};
use crate::trajectory::TokenId;

use super::batch::{check_ids, check_temperature, heat, packs, token_budget};
use super::decoder::Decoder;
use super::generate::pool_shape;
use super::paged::{BLOCK, Layer, Reads, Writes};
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
    for pack in packs(&lengths, token_budget(decoder.device)) {
        let rows: Vec<&Layout> = pack.iter().map(|&row| &layouts[row]).collect();
        let temperatures: Vec<f32> = pack
            .iter()
            .map(|&row| heat(distinct[row].temperature))
            .collect();
        let mut logprobs = forward(decoder, &rows, &temperatures).into_iter();
        for &row in &pack {
            scored[row] = logprobs.by_ref().take(layouts[row].wanted.len()).collect();
        }
    }
    let replies = requests.iter().zip(source);
    Ok(replies
        .map(|(request, row)| reply(request, &scored[row]))
        .collect())
}

/// Log-probs of everything wanted of these layouts, one after the other.
fn forward(decoder: &Decoder, rows: &[&Layout], temperatures: &[f32]) -> Vec<f32> {
    let device = decoder.device;
    let (mut ids, mut positions) = (Vec::new(), Vec::new());
    let (mut index, mut targets, mut heats) = (Vec::new(), Vec::new(), Vec::new());
    let mut pass = Pass::default();
    for (row, &temperature) in rows.iter().zip(temperatures) {
        let first = ids.len();
        pass.add(row, first);
        ids.extend(row.ids.iter().map(|&id| i64::from(id)));
        positions.extend(row.positions.iter().map(|&at| i64::from(at)));
        for &(at, id) in &row.wanted {
            index.push((first + at) as i64);
            targets.push(i64::from(id));
            heats.push(temperature);
        }
    }
    if index.is_empty() {
        return Vec::new();
    }
    // The keys and values of a layer are not needed after it.
    let scratch = Layer::new(pool_shape(decoder), i64::from(pass.blocks));
    let row = |list: &[i64]| Tensor::from_slice(list).unsqueeze(0).to_device(device);
    let attend = |_: usize, q: &Tensor, k: &Tensor, v: &Tensor| {
        scratch.write(k, v, &pass.writes);
        scratch.attend(q, &pass.reads)
    };
    let wanted = Tensor::from_slice(&index).to_device(device);
    let hidden = decoder.forward(&row(&ids), Some(&row(&positions)), &wanted, attend);
    // A large vocabulary is gone through in pieces, so that its logits fit into memory.
    let piece = (LOGITS / decoder.shape.settings.vocab_size.max(1) as usize).max(1);
    let mut logprobs = Vec::with_capacity(index.len());
    let states = hidden.last.split(piece as i64, 0);
    let pieces = states.iter().zip(targets.chunks(piece));
    for ((states, targets), heats) in pieces.zip(heats.chunks(piece)) {
        let mut logits = decoder.logits(states);
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

/// Who writes and reads which blocks in one pass.
#[derive(Default)]
struct Pass {
    reads: Reads,
    writes: Writes,
    blocks: u32,
}

impl Pass {
    /// A layout whose first id is row `first`.
    fn add(&mut self, layout: &Layout, first: usize) {
        let trunk = layout.branches.first().map_or(layout.ids.len(), |b| b.0);
        let table = self.fresh(trunk.div_ceil(BLOCK));
        for position in 0..trunk {
            self.writes.push(first + position, position, &table);
        }
        self.reads.push(trunk, 0, &table);
        for &(start, end, sees) in &layout.branches {
            // Whole blocks of what it sees are the trunk's; the rest of it is written a second time.
            let mut own = table[..sees / BLOCK].to_vec();
            let shared = own.len() * BLOCK;
            own.extend(self.fresh((sees + end - start).div_ceil(BLOCK) - own.len()));
            for position in shared..sees {
                self.writes.push(first + position, position, &own);
            }
            for (row, position) in (start..end).zip(sees..) {
                self.writes.push(first + row, position, &own);
            }
            self.reads.push(end - start, sees, &own);
        }
    }

    fn fresh(&mut self, count: usize) -> Vec<u32> {
        let first = self.blocks;
        self.blocks += count as u32;
        (first..self.blocks).collect()
    }
}

/// A float tensor as a list.
pub(super) fn host(tensor: &Tensor) -> Vec<f32> {
    let tensor = tensor.detach().to_kind(Kind::Float).contiguous();
    let mut values = vec![0f32; tensor.numel()];
    tensor.copy_data(&mut values, tensor.numel());
    values
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
