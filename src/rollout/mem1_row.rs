//! MEM1's training row (Zhou et al., 2025, `attn_mask_utils.py`): a whole trajectory laid flat under
//! a block mask, for comparison.
//!
//! palimpsest does not train on it. In MEM1's rollout a step sees the step before it, thought and
//! all; under this mask the thought of the step before, which is the memory, is hidden, and positions
//! count on over the whole row. A trajectory in a rewritten context is one row a context here, with
//! exactly the ids and positions that were sampled (`context.rs`).

use crate::trajectory::TokenId;

/// What a token of the row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mem1Block {
    /// The question.
    Question,
    /// The thought of a step: MEM1's memory.
    Think,
    /// The action of a step.
    Action,
    /// What the action brought; never trained on.
    Information,
}

/// The ids of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mem1Ids {
    /// Thought.
    pub think: Vec<TokenId>,
    /// Action.
    pub action: Vec<TokenId>,
    /// Information.
    pub information: Vec<TokenId>,
}

/// A flat row. Its positions are 0, 1, 2, ...
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mem1Row {
    /// The ids, without padding.
    pub ids: Vec<TokenId>,
    /// What each id belongs to, and in which step. Length of `ids`.
    pub of: Vec<(Mem1Block, usize)>,
    /// Length of the question, tokens.
    pub question: usize,
}

impl Mem1Row {
    /// Lays a trajectory out; `pad` ids are left out.
    #[must_use]
    pub fn new(question: &[TokenId], steps: &[Mem1Ids], pad: TokenId) -> Self {
        let mut row = Self::default();
        let mut push = |ids: &[TokenId], block, step| {
            for &id in ids.iter().filter(|&&id| id != pad) {
                row.ids.push(id);
                row.of.push((block, step));
            }
        };
        push(question, Mem1Block::Question, 0);
        for (number, step) in steps.iter().enumerate() {
            push(&step.think, Mem1Block::Think, number);
            push(&step.action, Mem1Block::Action, number);
            push(&step.information, Mem1Block::Information, number);
        }
        row.question = row
            .of
            .iter()
            .filter(|(block, _)| *block == Mem1Block::Question)
            .count();
        row
    }

    /// Whether the token at `query` sees the one at `key`. Thoughts and actions see the question, the
    /// action and information of the step before, and what stands before them in their own step;
    /// information sees only itself.
    #[must_use]
    pub fn sees(&self, query: usize, key: usize) -> bool {
        let (Some(&(block, step)), Some(&(seen, seen_step))) =
            (self.of.get(query), self.of.get(key))
        else {
            return false;
        };
        if key > query {
            return false;
        }
        if (block, step) == (seen, seen_step) {
            return true;
        }
        match (block, seen) {
            (Mem1Block::Information, _) => false,
            (_, Mem1Block::Question) => true,
            _ if seen_step == step => true,
            (_, Mem1Block::Think) => false,
            _ => seen_step + 1 == step,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mem1_hides_the_memory_of_the_step_before() {
        let step = |base| Mem1Ids {
            think: vec![base],
            action: vec![base + 1],
            information: vec![base + 2, 0],
        };
        let row = Mem1Row::new(&[1], &[step(10), step(20), step(30)], 0);
        assert_eq!(row.ids, [1, 10, 11, 12, 20, 21, 22, 30, 31, 32]);
        let seen = |query| -> Vec<TokenId> {
            (0..row.ids.len())
                .filter(|&key| row.sees(query, key))
                .map(|key| row.ids[key])
                .collect()
        };
        assert_eq!(seen(7), [1, 21, 22, 30], "the thought of step 2");
        assert_eq!(seen(8), [1, 21, 22, 30, 31], "its action");
        assert_eq!(seen(6), [22], "information");
    }
}
