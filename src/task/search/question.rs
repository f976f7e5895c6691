use serde::{Deserialize, Serialize};

/// One thing asked, and what is right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The question.
    pub question: String,
    /// The right answers, the preferred alias first. At least one, but for questions that are only
    /// looked up.
    pub gold: Vec<String>,
}

/// A question over a corpus, with one or more objectives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchQuestion {
    /// Its name in the file.
    pub id: String,
    /// Which set it is from (`hotpotqa`); empty if the file does not say.
    pub source: String,
    /// What is asked, in order. At least one.
    pub objectives: Vec<Asked>,
    /// Titles of the passages that support the answers; empty if the file does not say.
    pub supporting_titles: Vec<String>,
}

impl SearchQuestion {
    /// All that is asked, as one text: `q1; q2; q3`.
    #[must_use]
    pub fn text(&self) -> String {
        let questions: Vec<&str> = self
            .objectives
            .iter()
            .map(|asked| asked.question.as_str())
            .collect();
        questions.join("; ")
    }

    /// The aliases of every objective.
    #[must_use]
    pub fn golds(&self) -> Vec<Vec<String>> {
        self.objectives
            .iter()
            .map(|asked| asked.gold.clone())
            .collect()
    }
}
