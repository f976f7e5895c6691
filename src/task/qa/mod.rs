//! Judging free-text answers: normalising, matching, finding the answer in a response, several
//! questions at once.
//!
//! Pure functions. Metrics carry the definition in their name, because the field calls several
//! different things EM, F1 and CEM. Where a peer scores something else than what was written, its
//! way stands beside ours under the peer's name.

mod extract;
mod matching;
mod normalize;
mod objectives;
mod search_r1;

pub use extract::{answer_after_example, blocks, last_answer, verl_search_score};
pub use matching::{Metric, all_words_covered, exact_match, set_f1, substring_match};
pub use normalize::{is_space, normalize_answer, spaced_words, truth_as_yes_no};
pub use objectives::{
    ObjectiveScores, mem1_reward, score_objectives, split_answers, split_questions,
};
pub use search_r1::{
    ShapedScores, search_r1_evidence_shown, search_r1_format_holds, search_r1_information,
    search_r1_shaped_score,
};
