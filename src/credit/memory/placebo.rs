//! The control arm (W6): notes are paid for the gold answer of another question of the step, which
//! they cannot know. What still rises is no memory.

use rand::Rng as _;

use crate::random::{Domain, stream};

/// For every question of a step, the question whose gold answer it is paid for: a random cycle, so
/// that none keeps its own. One question alone keeps it. The same (seed, step) gives the same.
#[must_use]
pub fn shuffled(questions: usize, seed: u64, step: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..questions).collect();
    let mut random = stream(seed, Domain::Placebo, step, 0, 0);
    // Sattolo's shuffle: every cycle over all questions is equally likely.
    for at in (1..questions).rev() {
        let draw = random.next_u64() % at as u64;
        order.swap(at, draw as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_question_keeps_its_own_answer_and_none_is_lost() {
        for step in 0..50 {
            let order = shuffled(7, 3, step);
            assert!(order.iter().enumerate().all(|(at, &of)| at != of));
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..7).collect::<Vec<_>>());
            assert_eq!(order, shuffled(7, 3, step));
        }
        assert_ne!(shuffled(7, 3, 0), shuffled(7, 3, 1));
        assert_eq!(shuffled(1, 3, 0), [0]);
        assert!(shuffled(0, 3, 0).is_empty());
    }
}
