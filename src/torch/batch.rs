//! Rows of different lengths become padded tensors, in chunks that fit into memory.

use tch::{Device, Tensor};

use crate::engine::EngineError;
use crate::trajectory::TokenId;

use super::weights::Shape;

/// Most tokens computed at once, padding included, on the CPU: activations stay in its caches.
const CPU_TOKENS: usize = 2_048;
/// The same on an accelerator, which wants large operators.
const DEVICE_TOKENS: usize = 32_768;
/// Most entries of the attention masks of one chunk.
const MASK_ENTRIES: usize = 1 << 24;

/// Row numbers of chunks: rows of like length together (equal lengths keep their order), bounded by
/// padded tokens, and by rows * length² so that a mask fits. Every chunk has at least one row.
pub(super) fn chunks(lengths: &[usize], device: Device) -> Vec<Vec<usize>> {
    let tokens = token_budget(device);
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&row| lengths[row]);
    let mut chunks: Vec<Vec<usize>> = Vec::new();
    for row in order {
        let length = lengths[row];
        match chunks.last_mut() {
            Some(chunk)
                if (chunk.len() + 1) * length <= tokens
                    && (chunk.len() + 1) * length * length <= MASK_ENTRIES =>
            {
                chunk.push(row);
            }
            _ => chunks.push(vec![row]),
        }
    }
    chunks
}

/// Most tokens that are computed at once, unless a row is longer.
pub(super) fn token_budget(device: Device) -> usize {
    match device {
        Device::Cpu => CPU_TOKENS,
        _ => DEVICE_TOKENS,
    }
}

/// Row numbers of packs: rows in their order, one after the other in one packed row, of at most so many
/// tokens. Every pack has at least one row.
pub(super) fn packs(lengths: &[usize], budget: usize) -> Vec<Vec<usize>> {
    let mut packs: Vec<Vec<usize>> = Vec::new();
    let mut filled = 0;
    for (row, length) in lengths.iter().enumerate() {
        match packs.last_mut() {
            Some(pack) if filled + length <= budget => pack.push(row),
            _ => {
                packs.push(vec![row]);
                filled = 0;
            }
        }
        filled += length;
    }
    packs
}

/// `rows` as i64 [rows, longest], padded on the right with 0: a real id, whose results are masked
/// or never read.
pub(super) fn padded(rows: &[&[u32]], device: Device) -> Tensor {
    let width = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    let mut flat = vec![0i64; rows.len() * width];
    for (line, row) in flat.chunks_mut(width.max(1)).zip(rows) {
        for (slot, &id) in line.iter_mut().zip(*row) {
            *slot = i64::from(id);
        }
    }
    Tensor::from_slice(&flat)
        .view([rows.len() as i64, width as i64])
        .to_device(device)
}

/// The rows numbered `index` of `hidden` [batch, time, width], seen as [batch * time, width].
pub(super) fn picked(hidden: &Tensor, index: &[i64]) -> Tensor {
    let width = hidden.size().last().copied().unwrap_or(1);
    hidden
        .reshape([-1, width])
        .index_select(0, &Tensor::from_slice(index).to_device(hidden.device()))
}

/// Checks that ids exist and that there are 1 to `max_position_embeddings` of them.
///
/// # Errors
/// [`EngineError::BadRequest`], naming `what`, the value and the rule.
pub(super) fn check_ids(shape: &Shape, what: &str, ids: &[TokenId]) -> Result<(), EngineError> {
    let (most, vocabulary) = (
        shape.settings.max_position_embeddings,
        shape.settings.vocab_size,
    );
    if ids.is_empty() || ids.len() as i64 > most {
        return Err(EngineError::BadRequest(format!(
            "{what} has {} ids, but must have 1 to {most} (max_position_embeddings)",
            ids.len()
        )));
    }
    match ids.iter().find(|&&id| i64::from(id) >= vocabulary) {
        Some(id) => Err(EngineError::BadRequest(format!(
            "{what} holds id {id}, but ids must be below {vocabulary} (vocab_size); was it encoded \
             with another tokenizer?"
        ))),
        None => Ok(()),
    }
}

/// Checks that `actual` lists along a row have the row's length.
///
/// # Errors
/// [`EngineError::BadRequest`], naming `what` and `field`.
pub(super) fn check_length(
    what: &str,
    field: &str,
    actual: usize,
    expected: usize,
) -> Result<(), EngineError> {
    if actual == expected {
        return Ok(());
    }
    Err(EngineError::BadRequest(format!(
        "{what}: {field} has {actual} entries, but must have one for each of the {expected} ids"
    )))
}

/// What logits are divided by at this sampling temperature: 1 for greedy, whose log-probs are those
/// of the unheated distribution.
pub(super) fn heat(temperature: f32) -> f32 {
    if temperature > 0.0 { temperature } else { 1.0 }
}

/// Checks that a temperature is finite and not negative.
///
/// # Errors
/// [`EngineError::BadRequest`], naming `what` and the value.
pub(super) fn check_temperature(what: &str, temperature: f32) -> Result<(), EngineError> {
    if temperature >= 0.0 && temperature.is_finite() {
        return Ok(());
    }
    Err(EngineError::BadRequest(format!(
        "{what}: temperature is {temperature}, but must be 0 (greedy) or above"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_hold_every_row_once_and_keep_like_lengths_together() {
        let lengths: Vec<usize> = (0..300).map(|i| (i * 37) % 400 + 1).collect();
        let chunks = chunks(&lengths, Device::Cpu);
        let mut seen: Vec<usize> = chunks.iter().flatten().copied().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..300).collect::<Vec<_>>());
        assert!(chunks.len() > 1);
        for chunk in &chunks {
            let longest = chunk.iter().map(|&row| lengths[row]).max().unwrap();
            assert!(chunk.len() * longest <= CPU_TOKENS);
        }
    }

    #[test]
    fn packs_keep_the_order_and_the_budget() {
        let packs = packs(&[2_000, 48, 1, 5_000, 3], 2_048);
        assert_eq!(packs, vec![vec![0, 1], vec![2], vec![3], vec![4]]);
    }

    #[test]
    fn a_row_beyond_the_budget_gets_a_chunk_of_its_own() {
        assert_eq!(
            chunks(&[20_000, 1, 2], Device::Cpu),
            vec![vec![1, 2], vec![0]]
        );
    }
}
