//! Two retrievers as one, by the ranks they give.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Hit, RetrievalError, Retriever, sort_hits};

/// The constant of reciprocal rank fusion (Cormack et al., 2009).
const RANK_CONSTANT: f32 = 60.0;
/// How many passages of each list are fused, as a multiple of those asked for.
const DEPTH: usize = 4;
/// But at least so many.
const DEPTH_LEAST: usize = 50;

/// Several retrievers over one corpus, fused by reciprocal rank.
pub struct Hybrid(pub Vec<Arc<dyn Retriever>>);

impl Retriever for Hybrid {
    fn search(&self, queries: &[String], count: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
        let depth = count.saturating_mul(DEPTH).max(DEPTH_LEAST);
        let lists = self
            .0
            .iter()
            .map(|retriever| retriever.search(queries, depth))
            .collect::<Result<Vec<_>, _>>()?;
        Ok((0..queries.len())
            .map(|query| {
                let of_query: Vec<&[Hit]> = lists
                    .iter()
                    .filter_map(|list| list.get(query).map(Vec::as_slice))
                    .collect();
                fuse(&of_query, count)
            })
            .collect())
    }
}

/// The best `count` by the sum of `1 / (60 + rank)` over the lists, ranks from 1. Scores of the
/// lists do not count, only their order.
#[must_use]
pub fn fuse(lists: &[&[Hit]], count: usize) -> Vec<Hit> {
    let mut sums: BTreeMap<u32, f32> = BTreeMap::new();
    for list in lists {
        for (rank, hit) in list.iter().enumerate() {
            *sums.entry(hit.passage).or_default() += 1.0 / (RANK_CONSTANT + rank as f32 + 1.0);
        }
    }
    let mut hits: Vec<Hit> = sums
        .into_iter()
        .map(|(passage, score)| Hit { passage, score })
        .collect();
    sort_hits(&mut hits);
    hits.truncate(count);
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_lists_know_comes_first_whatever_the_scores() {
        let list = |passages: &[u32], score: f32| -> Vec<Hit> {
            passages
                .iter()
                .map(|&passage| Hit { passage, score })
                .collect()
        };
        let (words, meaning) = (list(&[1, 2, 3], 90.0), list(&[4, 3, 5], 0.1));
        let fused = fuse(&[&words, &meaning], 3);
        let order: Vec<u32> = fused.iter().map(|hit| hit.passage).collect();
        // 3 stands in both lists; 1 and 4 lead one each and are equal, so corpus order decides.
        assert_eq!(order, [3, 1, 4]);
        assert!((fused[0].score - (1.0 / 63.0 + 1.0 / 62.0)).abs() < 1e-6);
    }

    /// Gives as many as it is asked for, up to three.
    struct Three;

    impl Retriever for Three {
        fn search(
            &self,
            queries: &[String],
            count: usize,
        ) -> Result<Vec<Vec<Hit>>, RetrievalError> {
            let all = (0..3u32).map(|passage| Hit {
                passage,
                score: 1.0,
            });
            Ok(vec![all.take(count).collect(); queries.len()])
        }
    }

    #[test]
    fn more_than_there_is_may_be_asked_for() {
        let both = Hybrid(vec![Arc::new(Three), Arc::new(Three)]);
        let found = both.search(&["q".to_owned()], usize::MAX).unwrap();
        assert_eq!(found[0].len(), 3);
    }
}
