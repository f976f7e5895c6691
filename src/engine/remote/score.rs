//! Scoring on the server: a trunk and each of its branches become rows of their own, since servers
//! know no block masks. Their prefix cache, and that equal rows are sent once, make up for some of it.

use std::collections::BTreeMap;

use super::RemoteError;
use super::server::Server;
use crate::engine::{EngineError, ScoreRequest, Scored};
use crate::trajectory::TokenId;

/// A row and the first id whose log-prob is wanted (at least 1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub ids: Vec<TokenId>,
    pub from: usize,
}

/// Rows to send, and where each request's log-probs stand among them.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    pub rows: Vec<Row>,
    known: BTreeMap<Row, usize>,
    /// For each request: the row of the trunk, and of every branch. None where nothing is wanted.
    places: Vec<(Option<usize>, Vec<Option<usize>>)>,
}

impl Sheet {
    /// Lays out requests.
    ///
    /// # Errors
    /// [`EngineError::BadRequest`] for a branch that does not hang on its trunk.
    pub fn new(requests: &[ScoreRequest]) -> Result<Self, EngineError> {
        let mut sheet = Self::default();
        for request in requests {
            let trunk = request
                .score_trunk
                .then(|| sheet.place(&request.trunk, &[], 1));
            let mut branches = Vec::with_capacity(request.branches.len());
            for (number, branch) in request.branches.iter().enumerate() {
                let (at, from) = (branch.at as usize, branch.scored_from as usize);
                let seen = request.trunk.get(..at).filter(|seen| !seen.is_empty());
                let Some(seen) = seen.filter(|_| from <= branch.ids.len()) else {
                    return Err(EngineError::BadRequest(format!(
                        "scoring trajectory {}: branch {number} hangs at {at} and is scored from {from}, but must hang at 1 to {}, the trunk's length, and be scored from at most {}, its own",
                        request.id,
                        request.trunk.len(),
                        branch.ids.len()
                    )));
                };
                branches.push(sheet.place(seen, &branch.ids, at + from));
            }
            sheet.places.push((trunk.flatten(), branches));
        }
        Ok(sheet)
    }

    /// The row of these ids; none if no log-prob of it is wanted.
    fn place(&mut self, seen: &[TokenId], ids: &[TokenId], from: usize) -> Option<usize> {
        if seen.len() + ids.len() <= from {
            return None;
        }
        let row = Row {
            ids: [seen, ids].concat(),
            from,
        };
        let next = self.rows.len();
        let at = *self.known.entry(row.clone()).or_insert(next);
        if at == next {
            self.rows.push(row);
        }
        Some(at)
    }

    /// The replies, from the log-probs of every row.
    pub fn replies(&self, requests: &[ScoreRequest], scores: &[Vec<f32>]) -> Vec<Scored> {
        let of = |place: &Option<usize>| place.and_then(|at| scores.get(at).cloned());
        requests
            .iter()
            .zip(&self.places)
            .map(|(request, (trunk, branches))| Scored {
                id: request.id,
                trunk: match (request.score_trunk, request.trunk.is_empty()) {
                    (true, false) => [vec![0.0], of(trunk).unwrap_or_default()].concat(),
                    _ => Vec::new(),
                },
                branches: branches
                    .iter()
                    .map(|at| of(at).unwrap_or_default())
                    .collect(),
            })
            .collect()
    }
}

impl Server {
    /// Log-probs of a row.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn row(&self, number: usize, row: &Row) -> Result<Vec<f32>, RemoteError> {
        let what = format!("scoring row {number}");
        let Some(way) = self.can.scores else {
            return Err(RemoteError::BadReply {
                what,
                field: "the handshake".into(),
                problem: "found no log-probs of prompts; engine.generator.scoring: learner".into(),
            });
        };
        self.line.score(&what, &row.ids, row.from, way).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Branch, Weights};
    use crate::trajectory::TrajectoryId;

    fn request(branches: Vec<Branch>, score_trunk: bool) -> ScoreRequest {
        ScoreRequest {
            id: TrajectoryId::default(),
            trunk: vec![1, 2, 3, 4],
            score_trunk,
            branches,
            temperature: 1.0,
            under: Weights::Policy,
        }
    }

    fn branch(at: u32, ids: &[TokenId], scored_from: u32) -> Branch {
        Branch {
            at,
            ids: ids.to_vec(),
            scored_from,
        }
    }

    #[test]
    fn trunk_and_branches_become_rows_and_equal_ones_one_row() {
        let requests = [
            request(vec![branch(2, &[7, 8], 1), branch(1, &[9], 0)], true),
            request(vec![branch(2, &[7, 8], 1), branch(2, &[7, 8], 2)], false),
        ];
        let sheet = Sheet::new(&requests).unwrap();
        let rows: Vec<(&[TokenId], usize)> = sheet
            .rows
            .iter()
            .map(|row| (&row.ids[..], row.from))
            .collect();
        assert_eq!(
            rows,
            [(&[1, 2, 3, 4][..], 1), (&[1, 2, 7, 8], 3), (&[1, 9], 1)]
        );
        let scores = [vec![-1.0, -2.0, -3.0], vec![-4.0], vec![-5.0]];
        let replies = sheet.replies(&requests, &scores);
        assert_eq!(replies[0].trunk, [0.0, -1.0, -2.0, -3.0]);
        assert_eq!(replies[0].branches, [vec![-4.0], vec![-5.0]]);
        assert_eq!(replies[1].trunk, Vec::<f32>::new());
        assert_eq!(replies[1].branches, [vec![-4.0], vec![]]);
    }

    #[test]
    fn a_branch_beside_its_trunk_is_refused() {
        for bad in [branch(0, &[7], 0), branch(5, &[7], 0), branch(2, &[7], 2)] {
            let refused = Sheet::new(&[request(vec![bad], false)]).unwrap_err();
            assert!(
                refused.to_string().contains("must hang at 1 to 4"),
                "{refused}"
            );
        }
    }
}
