//! Questions with several objectives, put together from single ones.

use rand::seq::SliceRandom as _;

use super::question::SearchQuestion;
use crate::random::{Domain, stream};

/// Puts `objectives` questions at a time together to one, as MEM1 does: within each source, in an
/// order drawn by `seed`, consecutive questions; a remainder is left out. The same seed gives the
/// same questions. One objective: the questions as they are.
#[must_use]
pub fn compose(questions: &[SearchQuestion], objectives: usize, seed: u64) -> Vec<SearchQuestion> {
    if objectives <= 1 {
        return questions.to_vec();
    }
    let mut sources: Vec<(&str, Vec<&SearchQuestion>)> = Vec::new();
    for question in questions {
        match sources
            .iter_mut()
            .find(|(name, _)| *name == question.source)
        {
            Some((_, of_source)) => of_source.push(question),
            None => sources.push((&question.source, vec![question])),
        }
    }
    let mut composed = Vec::new();
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
