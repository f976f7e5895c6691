//! Who holds which block of the cache. A block is free, or held by one or more contexts; a full block can
//! be found again by what stands in it and before it, so contexts with a common beginning share it. Pure.

use std::collections::BTreeMap;

use crate::trajectory::TokenId;

use super::paged::BLOCK;

/// A full block of a context: the block before it (none: the first) and its ids. The same key means the
/// same ids from the beginning on.
type Key = (Option<u32>, [TokenId; BLOCK]);

/// The blocks of the cache.
pub(super) struct Blocks {
    total: usize,
    /// Of each block that was ever used: how many contexts hold it, and its key if it can be found.
    used: Vec<(u32, Option<Key>)>,
    free: Vec<u32>,
    known: BTreeMap<Key, u32>,
}

impl Blocks {
    /// So many blocks, all free.
    pub fn new(total: usize) -> Self {
        Self {
            total,
            used: Vec::new(),
            free: Vec::new(),
            known: BTreeMap::new(),
        }
    }

    /// All blocks.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Free blocks.
    pub fn available(&self) -> usize {
        self.total - self.used.len() + self.free.len()
    }

    /// Takes a free block: one that was used before if there is one, so that no more memory is touched
    /// than is needed.
    pub fn take(&mut self) -> Option<u32> {
        let block = match self.free.pop() {
            Some(block) => block,
            None if self.used.len() < self.total => {
                self.used.push((0, None));
                self.used.len() as u32 - 1
            }
            None => return None,
        };
        self.hold(block);
        Some(block)
    }

    /// One more context holds the block.
    pub fn hold(&mut self, block: u32) {
        if let Some(used) = self.used.get_mut(block as usize) {
            used.0 += 1;
        }
    }

    /// How many contexts hold the block.
    pub fn holders(&self, block: u32) -> u32 {
        self.used.get(block as usize).map_or(0, |used| used.0)
    }

    /// One context less holds each of these; what nobody holds is free.
    pub fn give_back(&mut self, blocks: &[u32]) {
        for &block in blocks {
            let Some(used) = self.used.get_mut(block as usize) else {
                continue;
            };
            used.0 = used.0.saturating_sub(1);
            if used.0 == 0 {
                self.hide(block);
                self.free.push(block);
            }
        }
    }

    /// From now on the block, which follows `before` and is filled with `ids`, can be found. If another
    /// with the same content can be found already, that one stays.
    pub fn publish(&mut self, before: Option<u32>, ids: &[TokenId], block: u32) {
        let (Some(key), Some(used)) = (key(before, ids), self.used.get_mut(block as usize)) else {
            return;
        };
        if let std::collections::btree_map::Entry::Vacant(place) = self.known.entry(key) {
            place.insert(block);
            used.1 = Some(key);
        }
    }

    /// The block can no longer be found, as its content is about to change.
    pub fn hide(&mut self, block: u32) {
        let key = self
            .used
            .get_mut(block as usize)
            .and_then(|used| used.1.take());
        if let Some(key) = key {
            self.known.remove(&key);
        }
    }

    /// The known blocks that hold the beginning of `ids`.
    pub fn find(&self, ids: &[TokenId]) -> Vec<u32> {
        let mut found: Vec<u32> = Vec::new();
        for part in ids.chunks_exact(BLOCK) {
            let next = key(found.last().copied(), part).and_then(|key| self.known.get(&key));
            match next {
                Some(&block) => found.push(block),
                None => break,
            }
        }
        found
    }
}

fn key(before: Option<u32>, ids: &[TokenId]) -> Option<Key> {
    Some((before, ids.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(seed: u32) -> Vec<TokenId> {
        (0..BLOCK as u32).map(|i| seed * 100 + i).collect()
    }

    #[test]
    fn blocks_are_found_by_everything_that_stands_before_their_end() {
        let mut blocks = Blocks::new(4);
        let (a, b) = (blocks.take().unwrap(), blocks.take().unwrap());
        blocks.publish(None, &ids(1), a);
        blocks.publish(Some(a), &ids(2), b);
        assert_eq!(blocks.find(&[ids(1), ids(2)].concat()), [a, b]);
        assert_eq!(blocks.find(&[ids(1), ids(2), ids(3)].concat()), [a, b]);
        assert_eq!(blocks.find(&[ids(1), ids(3)].concat()), [a]);
        assert!(blocks.find(&ids(2)).is_empty());
        assert!(blocks.find(&ids(1)[..15]).is_empty());
    }

    #[test]
    fn a_block_is_free_and_forgotten_when_nobody_holds_it() {
        let mut blocks = Blocks::new(1);
        let a = blocks.take().unwrap();
        assert_eq!(blocks.take(), None);
        blocks.publish(None, &ids(1), a);
        blocks.hold(a);
        blocks.give_back(&[a]);
        assert_eq!((blocks.available(), blocks.holders(a)), (0, 1));
        assert_eq!(blocks.find(&ids(1)), [a]);
        blocks.give_back(&[a]);
        assert_eq!(blocks.available(), 1);
        assert!(blocks.find(&ids(1)).is_empty());
        assert_eq!(blocks.take(), Some(a));
    }

    #[test]
    fn the_first_of_two_equal_blocks_stays_known() {
        let mut blocks = Blocks::new(2);
        let (a, b) = (blocks.take().unwrap(), blocks.take().unwrap());
        blocks.publish(None, &ids(1), a);
        blocks.publish(None, &ids(1), b);
        blocks.give_back(&[b]);
        assert_eq!(blocks.find(&ids(1)), [a]);
        blocks.hide(a);
        assert!(blocks.find(&ids(1)).is_empty());
    }
}
