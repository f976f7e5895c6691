//! Questions with several objectives, put together from single ones.

use rand::seq::SliceRandom as _;

use super::question::SearchQuestion;
use crate::random::{Domain, stream};

/// The questions with `objectives` objectives: those that have so many in the file, in its order, then
/// single ones put together as MEM1 does: within each source, in an order drawn by `seed`, consecutive
/// questions; a remainder is left out. The same seed gives the same questions.
#[must_use]
pub fn compose(questions: &[SearchQuestion], objectives: usize, seed: u64) -> Vec<SearchQuestion> {
    let of = |count: usize| {
        questions
            .iter()
            .filter(move |question| question.objectives.len() == count)
    };
    let mut composed: Vec<SearchQuestion> = of(objectives).cloned().collect();
    if objectives <= 1 {
        return composed;
    }
    let mut sources: Vec<(&str, Vec<&SearchQuestion>)> = Vec::new();
    for question in of(1) {
        match sources
            .iter_mut()
            .find(|(name, _)| *name == question.source)
        {
            Some((_, of_source)) => of_source.push(question),
            None => sources.push((&question.source, vec![question])),
        }
    }
    for (number, (source, mut of_source)) in (0u32..).zip(sources) {
        let mut rng = stream(seed, Domain::Composition, number, objectives as u32, 0);
        of_source.shuffle(&mut rng);
        composed.extend(
            of_source
                .chunks_exact(objectives)
                .map(|parts| joined(parts, source)),
        );
    }
    composed
}

fn joined(parts: &[&SearchQuestion], source: &str) -> SearchQuestion {
    let mut titles = Vec::new();
    for title in parts.iter().flat_map(|part| &part.supporting_titles) {
        if !titles.contains(title) {
            titles.push(title.clone());
        }
    }
    let ids: Vec<&str> = parts.iter().map(|part| part.id.as_str()).collect();
    SearchQuestion {
        id: ids.join("+"),
        source: source.to_owned(),
        objectives: parts
            .iter()
            .flat_map(|part| part.objectives.iter().cloned())
            .collect(),
        supporting_titles: titles,
    }
}
