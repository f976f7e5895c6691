#![allow(clippy::unwrap_used)]

use crate::task::{Split, Task as _};

use super::LookupTask;

#[test]
fn a_question_reads_as_the_protocol_says() {
    let task = LookupTask::shipped().unwrap();
    let question = task.question(7, 0, 0, 2, Split::Test, false);
    assert_eq!(
        question.text,
        "<q> capital of Norway; language of South Georgia</q>"
    );
    assert_eq!(
        question.documents[0].1,
        "The language of Saudi Arabia is Arabic. The capital of Norway is Oslo."
    );
}
