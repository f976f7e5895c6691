mod rows;

use std::path::Path;

use super::*;
use crate::experiment::{ContextKind, Experiment, Retrieval, TaskKind, TaskSettings};
use crate::retrieval::no_dense;
use crate::task::lookup::LookupTask;
use crate::task::{NotesCount, Observed, Split, Task, load};
use crate::tokenizer::TextTokenizer;

fn single(source: &str, number: usize) -> SearchQuestion {
    SearchQuestion {
        id: format!("{source}{number}"),
        source: source.into(),
        objectives: vec![Asked {
            question: format!("{source} {number}?"),
            gold: vec![number.to_string()],
        }],
        supporting_titles: vec![format!("title {}", number / 2)],
    }
}

#[test]
fn composed_questions_keep_to_their_source_and_use_each_question_once() {
    let questions: Vec<SearchQuestion> = (0..10)
        .map(|number| single("a", number))
        .chain((0..5).map(|number| single("b", number)))
        .collect();
    for objectives in [2, 4, 6, 8, 10, 16] {
        let composed = compose(&questions, objectives, 1);
        assert_eq!(
            composed.len(),
            10 / objectives + 5 / objectives,
            "{objectives}"
        );
        let mut used: Vec<&str> = Vec::new();
        for question in &composed {
            assert_eq!(question.objectives.len(), objectives);
            for asked in &question.objectives {
                assert!(asked.question.starts_with(&question.source));
                used.push(&asked.question);
            }
        }
        let count = used.len();
        used.sort_unstable();
        used.dedup();
        assert_eq!(used.len(), count, "no question twice");
    }
    assert_eq!(compose(&questions, 2, 1), compose(&questions, 2, 1));
    assert_ne!(compose(&questions, 2, 1), compose(&questions, 2, 2));
    assert_eq!(compose(&questions, 1, 1), questions);
    // Questions that have several objectives already are no parts, and keep their number.
    let mixed = [&questions[..3], &compose(&questions, 2, 1)[..2]].concat();
    assert_eq!(compose(&mixed, 1, 1), questions[..3]);
    let pairs = compose(&mixed, 2, 1);
    assert_eq!(pairs.len(), 3);
    assert_eq!(pairs[..2], mixed[3..]);
    assert!(compose(&mixed, 4, 1).is_empty());
    let pair = &compose(&questions[..2], 2, 1)[0];
    assert_eq!(pair.supporting_titles, ["title 0"]);
    assert!(
        ["a0+a1", "a1+a0"].contains(&pair.id.as_str()),
        "{}",
        pair.id
    );
}

/// A corpus and questions in a folder, and the task over them.
pub(crate) fn task(folder: &Path, change: impl Fn(&mut Experiment)) -> (Experiment, Box<dyn Task>) {
    let rows = [
        r#"{"contents": "\"Ulm\"\nUlm is a city in Germany. Its mayor is Ann Lee.", "url": "http://w/Ulm"}"#,
        r#"{"contents": "\"Rome\"\nRome is a town in Italy."}"#,
        r#"{"contents": "\"Tea\"\nTea is a drink <mem> from China."}"#,
    ];
    let questions = [
        r#"{"question": "Who is the mayor of Ulm?", "golden_answers": ["Ann Lee", "A. Lee"]}"#,
        r#"{"question": "Where is Rome?", "golden_answers": ["Italy"]}"#,
        r#"{"question": "Where is tea from?", "golden_answers": ["China"]}"#,
    ];
    let path = |name: &str| folder.join(name).display().to_string();
    std::fs::write(path("c.jsonl"), rows.join("\n")).unwrap();
    std::fs::write(path("q.jsonl"), questions.join("\n")).unwrap();
    let task = TaskSettings {
        kind: TaskKind::Search,
        corpus: path("c.jsonl"),
        questions: path("q.jsonl"),
        objectives_min: 1,
        objectives_max: 2,
        passages: 2,
        ..TaskSettings::default()
    };
    let mut experiment = Experiment {
        task,
        ..Experiment::default()
    };
    experiment.evaluation.objectives = vec![1, 3];
    experiment.evaluation.objectives_during = vec![2];
    change(&mut experiment);
    let tokenizer = TextTokenizer::clone(LookupTask::shipped().unwrap().tokenizer());
    let task = load(
        &experiment.task,
        Some(tokenizer),
        &no_dense,
        &mut |_, _, _| {},
    )
    .unwrap();
    (experiment, task)
}

#[test]
fn the_search_task_asks_judges_and_counts_notes() {
    let folder = tempfile::tempdir().unwrap();
    let (experiment, task) = task(folder.path(), |_| {});
    task.ready(&experiment).unwrap();
    let asked = |number| task.question(7, 1, number, 1, Split::Test, false);
    let first = asked(0);
    assert!(first.text.contains("parted by \";\""));
    assert!(
        first.text.ends_with("<q> Who is the mayor of Ulm?</q>"),
        "{}",
        first.text
    );
    assert_eq!(first, asked(3), "in order, and around again");
    assert_ne!(first, asked(1));
    let pair = task.question(7, 1, 0, 2, Split::Train, false);
    assert_eq!(pair, task.question(7, 1, 0, 2, Split::Train, true));
    assert_eq!(pair.objectives.len(), 2);
    let firsts: Vec<&str> = pair
        .objectives
        .iter()
        .map(|of| of.gold[0].as_str())
        .collect();
    assert_eq!(pair.gold_text, format!(" {}", firsts.join("; ")));
    let parts: Vec<u32> = pair
        .gold_answers
        .iter()
        .flat_map(|aliases| aliases[0].ids.clone())
        .collect();
    assert_eq!(parts, pair.gold_ids);

    let judged = |answer: &str| task.judge(&pair, answer);
    assert_eq!(judged(&pair.gold_text).em, 1.0);
    assert_eq!((judged(firsts[0]).em, judged(firsts[0]).f1), (0.0, 0.5));
    let observed = |text: &str| Observed {
        query: "q".into(),
        text: text.into(),
    };
    let seen = [
        observed("Its mayor is Ann Lee."),
        observed("An Italyish town"),
    ];
    let count = |notes: &str| task.count_notes(&first, notes, &seen);
    assert_eq!(count("mayor: A. Lee"), NotesCount { seen: 1, kept: 1 });
    assert_eq!(count("mayor: Leeds"), NotesCount { seen: 1, kept: 0 });
    let last = [observed("Its mayor is Ann Lee.")];
    assert_eq!(
        task.count_notes(&first, "Ann Lee.", &last),
        NotesCount { seen: 1, kept: 1 }
    );
    let rome = asked(1);
    assert_eq!(
        task.count_notes(&rome, "Italy", &seen),
        NotesCount::default()
    );
}

#[test]
fn more_objectives_than_there_are_questions_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (experiment, task) = task(folder.path(), |experiment| {
        experiment.evaluation.objectives = vec![4];
    });
    let error = task.ready(&experiment).unwrap_err().to_string();
    assert!(error.contains("the 3 questions in"), "{error}");
    assert!(error.contains("with 4 objectives"), "{error}");
}

#[test]
fn what_a_run_does_not_ask_for_need_not_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let (mut experiment, task) = task(folder.path(), |experiment| {
        experiment.evaluation.objectives = vec![1];
        experiment.evaluation.objectives_during = vec![9];
        experiment.task.objectives_max = 8;
    });
    assert!(
        task.ready(&experiment).is_err(),
        "a training run asks for all of it"
    );
    experiment.evaluation.only = true;
    task.ready(&experiment).unwrap();
    experiment.evaluation.only = false;
    experiment.cold_start.stages.clear();
    experiment.learner.steps = 0;
    task.ready(&experiment).unwrap();
    experiment.evaluation.objectives = vec![4];
    let error = task.ready(&experiment).unwrap_err().to_string();
    assert!(error.contains("they have 1 each"), "{error}");
}

#[test]
fn without_libtorch_a_dense_retriever_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (mut experiment, task) = task(folder.path(), |_| {});
    experiment.task.retrieval = Retrieval::Dense("e5".into());
    let tokenizer = TextTokenizer::clone(task.tokenizer());
    let refused = load(
        &experiment.task,
        Some(tokenizer),
        &no_dense,
        &mut |_, _, _| {},
    );
    assert!(
        refused
            .err()
            .unwrap()
            .to_string()
            .contains("without libtorch")
    );
    let unnamed = load(&experiment.task, None, &no_dense, &mut |_, _, _| {});
    assert!(matches!(unnamed.err(), Some(TaskError::NoTokenizer)));
}

#[test]
fn the_chat_template_frames_the_question_and_its_absence_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (mut experiment, plain) = task(folder.path(), |_| {});
    experiment.task.chat = true;
    let words = folder.path().join("words");
    std::fs::create_dir(&words).unwrap();
    plain.tokenizer().save(&words).unwrap();
    let open = || {
        let tokenizer = TextTokenizer::load(&words).unwrap();
        load(
            &experiment.task,
            Some(tokenizer),
            &no_dense,
            &mut |_, _, _| {},
        )
    };
    let refused = open().err().unwrap().to_string();
    assert!(refused.contains("no chat template"), "{refused}");
    let template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}";
    std::fs::write(words.join("chat_template.jinja"), template).unwrap();
    let chat = open().unwrap();
    let asked = |task: &dyn Task| task.question(7, 1, 0, 1, Split::Test, false).text;
    assert_eq!(
        asked(chat.as_ref()),
        format!("[user] {}\n[assistant] ", asked(plain.as_ref()))
    );
    let bare = chat
        .seen_as(
            &chat.question(7, 1, 0, 1, Split::Test, false),
            ContextKind::NoNotes,
            &experiment.task.chunks,
        )
        .unwrap()
        .unwrap();
    assert!(
        !bare.text.contains("<mem> and </mem>") && bare.text.ends_with("</q>\n[assistant] "),
        "{}",
        bare.text
    );
}
