//! Counter-based random numbers: every draw has an address, so the make-up of a batch, the order of
//! systems and a restart change nothing.
//!
//! A stream is a ChaCha8 key made of (seed, domain, trajectory); inside it the stream number is the
//! turn and the word position is the token. Nothing is stored: the same address always gives the
//! same number, so a resumed run needs no random state beyond its cursors.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::trajectory::TrajectoryId;

/// What a random number is for. Different domains never share numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub enum Domain {
    /// Sampling of tokens.
    Sampling = 1,
    /// Drawing questions and knowledge bases.
    Questions = 2,
    /// Shuffling rows into mini-batches.
    MiniBatches = 3,
    /// Initial weights.
    Weights = 4,
    /// Examples of the cold start.
    ColdStart = 5,
    /// Positions probed by training-only aids.
    Aids = 6,
    /// Tokens that a loss leaves out at random.
    TokenChoice = 7,
    /// Whose gold answer a question is paid for in the control arm.
    Placebo = 8,
    /// Which questions are put together to one.
    Composition = 9,
    /// Draws of a bootstrap.
    Bootstrap = 10,
}

/// A generator that starts at the address (seed, domain, a, b, c).
#[must_use]
pub fn stream(seed: u64, domain: Domain, a: u32, b: u32, c: u32) -> ChaCha8Rng {
    let mut key = [0u8; 32];
    key[0..8].copy_from_slice(&seed.to_le_bytes());
    key[8..12].copy_from_slice(&(domain as u32).to_le_bytes());
    key[12..16].copy_from_slice(&a.to_le_bytes());
    key[16..20].copy_from_slice(&b.to_le_bytes());
    key[20..24].copy_from_slice(&c.to_le_bytes());
    ChaCha8Rng::from_seed(key)
}

/// The uniform number in [0, 1) that samples one token: 53 bits, addressed by
/// (seed, trajectory, turn, token).
#[must_use]
pub fn sampling_uniform(seed: u64, id: TrajectoryId, turn: u32, token: u32) -> f64 {
    let mut rng = stream(
        seed,
        Domain::Sampling,
        id.stream_step(),
        id.group,
        id.member,
    );
    rng.set_stream(u64::from(turn));
    rng.set_word_pos(u128::from(token) * 2);
    // 53 random bits scaled to [0, 1), the usual construction.
    (rng.next_u64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
}
