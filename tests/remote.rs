//! Engines that are servers: over real HTTP, against a server that speaks their protocols and whose
//! every probability can be worked out anew.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod fake_server;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fake_server::{Brain as _, Fake, Kind, Lie, Quirks, Toy, ToyLearner, Trouble, tokenizer};
use palimpsest::engine::remote::{Loader, NoLearner, RemoteEngine, RemoteError, ScoreWay, Stops};
use palimpsest::engine::{
    Branch, Engine, EngineError, Finish, GenerateRequest, Generated, LearnBatch, LearnKnobs,
    Sampling, ScoreRequest, Weights,
};
use palimpsest::experiment::{
    Experiment, GeneratorSetting, Importance, ImportanceSettings, ScoringSetting, ServerSettings,
};
use palimpsest::trajectory::TrajectoryId;

const STOPS: [&str; 3] = ["</search>", "</access>", "</answer>"];

fn experiment(fake: &Fake, kind: Kind, trains: bool) -> Experiment {
    let server = ServerSettings {
        url: fake.url.clone(),
        retry_seconds: 0.001,
        ..ServerSettings::default()
    };
    let mut experiment = Experiment::default();
    experiment.cold_start.stages.clear();
    experiment.learner.steps = u32::from(trains);
    experiment.engine.generator = match kind {
        Kind::Sglang => GeneratorSetting::Sglang(server),
        _ => GeneratorSetting::OpenAi(server),
    };
    experiment
}

fn server(experiment: &mut Experiment) -> &mut ServerSettings {
    match &mut experiment.engine.generator {
        GeneratorSetting::Sglang(server) | GeneratorSetting::OpenAi(server) => server,
        GeneratorSetting::Libtorch => panic!("no server"),
    }
}

fn measuring(experiment: &Experiment) -> Result<RemoteEngine<NoLearner>, EngineError> {
    let make = || Ok(NoLearner::new(tokenizer(), String::new()));
    RemoteEngine::connect(experiment, tokenizer(), make)
}

/// A learner with a toy of its own, so that server and learner share nothing but the folder.
fn training(experiment: &Experiment) -> Result<RemoteEngine<ToyLearner>, EngineError> {
    let make = || Ok(ToyLearner(Arc::new(Toy::new(&tokenizer()))));
    RemoteEngine::connect(experiment, tokenizer(), make)
}

fn id(number: u32) -> TrajectoryId {
    TrajectoryId {
        group: number / 16,
        member: number % 16,
        ..TrajectoryId::default()
    }
}

fn request(number: u32, stop: &[&str]) -> GenerateRequest {
    GenerateRequest {
        id: id(number),
        turn: 1,
        context: tokenizer().encode(&format!("<q> question {number}</q><mem>")),
        max_new_tokens: 40,
        sampling: Sampling::plain(1.0, 3),
        stop: stop.iter().map(|&stop| stop.to_owned()).collect(),
        ignore_eos: false,
    }
}

fn said(error: Result<impl Sized, EngineError>) -> String {
    match error {
        Ok(_) => panic!("it worked"),
        Err(error) => error.to_string(),
    }
}

/// Every log-prob is the toy's for exactly these ids.
fn assert_exact(turn: &Generated, request: &GenerateRequest) {
    let toy = Toy::new(&tokenizer());
    let mut seen = request.context.clone();
    assert_eq!(turn.ids.len(), turn.logprobs.len());
    for (&id, &logprob) in turn.ids.iter().zip(&turn.logprobs) {
        let expected = toy.logprobs(&seen, request.sampling.temperature)[id as usize] as f32;
        assert!(
            (logprob - expected).abs() < 1e-6,
            "{logprob} for {expected}"
        );
        seen.push(id);
    }
}

#[test]
fn ids_and_log_probs_are_exactly_those_that_were_sampled() {
    for kind in [Kind::Sglang, Kind::Vllm, Kind::Llama] {
        let fake = Fake::toy(kind, Quirks::default());
        let mut engine = measuring(&experiment(&fake, kind, false)).unwrap();
        let requests: Vec<GenerateRequest> = (0..6).map(|n| request(n, &STOPS)).collect();
        let turns = engine.generate(&requests).unwrap();
        assert_eq!(turns.len(), 6);
        for (turn, request) in turns.iter().zip(&requests) {
            assert_eq!((turn.id, turn.turn), (request.id, 1));
            // The toy may write a tag by chance, which ends the turn.
            let text = tokenizer().decode(&turn.ids);
            let tagged = STOPS.iter().any(|stop| text.ends_with(stop));
            assert_eq!(turn.finish == Finish::Stop, tagged, "{kind:?}: {text}");
            assert!(tagged || turn.ids.len() == 40, "{kind:?}: {text}");
            assert_exact(turn, request);
        }
    }
}

#[test]
fn a_turn_ends_with_the_id_that_completes_a_stop_whatever_the_server_does_with_stops() {
    let quirks = |ignores_stops, trims_stops| Quirks {
        ignores_stops,
        trims_stops,
        ..Quirks::default()
    };
    for (kind, quirks, stops) in [
        (Kind::Sglang, quirks(false, false), Stops::Kept),
        (Kind::Sglang, quirks(true, false), Stops::Unreliable),
        (Kind::Sglang, quirks(false, true), Stops::Unreliable),
        (Kind::Vllm, quirks(false, false), Stops::Kept),
        (Kind::Vllm, quirks(false, true), Stops::Unreliable),
        (Kind::Llama, quirks(false, false), Stops::Unreliable),
    ] {
        let fake = Fake::toy(kind, quirks);
        let mut engine = measuring(&experiment(&fake, kind, false)).unwrap();
        assert_eq!(engine.capabilities().stops, stops, "{kind:?}");
        // A stop that the toy writes: the text of the seventh id of its greedy turn.
        let mut greedy = request(1, &[]);
        greedy.sampling.temperature = 0.0;
        let whole = engine.generate(&[greedy.clone()]).unwrap().remove(0);
        let words = |ids: &[u32]| tokenizer().decode(ids);
        let stop = words(&whole.ids[6..8]);
        let at = (1..=40)
            .find(|&n| words(&whole.ids[..n]).contains(&stop))
            .unwrap();
        greedy.stop = [stop.clone()].into();
        let turn = engine.generate(&[greedy]).unwrap().remove(0);
        assert_eq!(turn.ids, whole.ids[..at], "{kind:?} {stop:?}");
        assert_eq!(turn.finish, Finish::Stop);
        assert_eq!(turn.logprobs.len(), at);
    }
}

#[test]
fn the_server_scores_trunks_and_branches_as_the_learner_does() {
    let echo = Quirks {
        echo_only: true,
        ..Quirks::default()
    };
    for (kind, quirks, way) in [
        (Kind::Sglang, Quirks::default(), ScoreWay::InputLogprobs),
        (Kind::Vllm, Quirks::default(), ScoreWay::PromptLogprobs),
        (Kind::Vllm, echo, ScoreWay::Echo),
    ] {
        let fake = Fake::toy(kind, quirks);
        let mut engine = measuring(&experiment(&fake, kind, false)).unwrap();
        assert_eq!(engine.capabilities().scores, Some(way));
        let requests: Vec<ScoreRequest> = (0..4)
            .map(|number| ScoreRequest {
                id: id(number),
                trunk: (number + 20..number + 60).collect(),
                score_trunk: number != 2,
                branches: (1..4)
                    .map(|at| Branch {
                        at: at * 9,
                        ids: vec![300, 301 + number, 302, 303],
                        scored_from: at % 3,
                    })
                    .collect(),
                temperature: 1.0,
                under: Weights::Policy,
            })
            .collect();
        let mut learner = ToyLearner(Arc::new(Toy::new(&tokenizer())));
        let expected = learner.score(&requests).unwrap();
        assert_eq!(engine.score(&requests).unwrap(), expected, "{kind:?}");
    }
}

#[test]
fn weights_travel_before_the_server_is_asked_for_anything_under_them() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    for (kind, expected) in [
        (
            Kind::Sglang,
            [
                "/pause_generation",
                "/update_weights_from_disk",
                "/continue_generation",
            ],
        ),
        (
            Kind::Vllm,
            [
                "/pause?mode=abort&clear_cache=true",
                "/collective_rpc",
                "/resume",
            ],
        ),
    ] {
        let quirks = Quirks {
            root: Some(root.clone()),
            ..Quirks::default()
        };
        let fake = Fake::toy(kind, quirks);
        let mut experiment = experiment(&fake, kind, true);
        if kind == Kind::Vllm {
            server(&mut experiment).weights_folder.clone_from(&root);
        }
        let mut engine = training(&experiment).unwrap();
        assert!(fake.steps().is_empty(), "weights before they are needed");
        let requests = [request(1, &STOPS)];
        let before = engine.generate(&requests).unwrap();
        assert_eq!(fake.steps(), expected);
        assert_eq!(engine.generate(&requests).unwrap().len(), 1);
        assert_eq!(fake.steps().len(), 3, "nothing was learned in between");
        for _ in 0..3 {
            engine
                .learn(&LearnBatch {
                    rows: Vec::new(),
                    mini_batches: Vec::new(),
                    knobs: LearnKnobs::default(),
                })
                .unwrap();
        }
        assert_eq!(fake.steps().len(), 3, "nobody asked for anything yet");
        let after = engine.generate(&requests).unwrap();
        assert_eq!(fake.steps(), [expected, expected].concat());
        assert_ne!(before[0].logprobs, after[0].logprobs);
    }
}

#[test]
fn a_server_that_keeps_its_old_weights_or_refuses_new_ones_stops_the_run_and_goes_on_generating() {
    let lazy = Quirks {
        ignores_loads: true,
        ..Quirks::default()
    };
    let fake = Fake::toy(Kind::Sglang, lazy);
    let mut engine = training(&experiment(&fake, Kind::Sglang, true)).unwrap();
    // Both begin with the same weights, so the first update changes nothing.
    engine.generate(&[request(1, &[])]).unwrap();
    engine.supervise(&supervised()).unwrap();
    let told = said(engine.generate(&[request(1, &[])]));
    assert!(
        told.contains("weight update 2") && told.contains("other weights"),
        "{told}"
    );

    let strict = Quirks {
        refuses_loads: true,
        ..Quirks::default()
    };
    let fake = Fake::toy(Kind::Sglang, strict);
    let mut engine = training(&experiment(&fake, Kind::Sglang, true)).unwrap();
    let told = said(engine.generate(&[request(1, &[])]));
    assert!(
        told.contains("shapes differ") && told.contains("server_folder"),
        "{told}"
    );
    assert_eq!(fake.steps().last().unwrap(), "/continue_generation");
}

fn supervised() -> palimpsest::engine::SupervisedBatch {
    palimpsest::engine::SupervisedBatch {
        parts: Vec::new(),
        matrix_lr: 0.0,
        other_lr: 0.0,
        beta2: 0.9,
        weight_decay: 0.0,
        grad_clip: 1.0,
        aid_weight: 0.0,
        address: (0, 0),
    }
}

#[test]
fn log_probs_at_another_temperature_than_was_sampled_at_are_refused() {
    let raw = Quirks {
        raw_logprobs: true,
        ..Quirks::default()
    };
    let fake = Fake::toy(Kind::Sglang, raw);
    let mut experiment = experiment(&fake, Kind::Sglang, true);
    experiment.rollout.temperature = 0.6;
    experiment.learner.importance = Importance::Truncate(ImportanceSettings::default());
    let told = said(training(&experiment).unwrap().generate(&[request(1, &[])]));
    assert!(told.contains("processed_logprobs"), "{told}");
    experiment.rollout.temperature = 1.0;
    training(&experiment)
        .unwrap()
        .generate(&[request(1, &[])])
        .unwrap();
}

#[test]
fn training_is_refused_with_remedies_where_measuring_goes_on() {
    let quirks = |change: fn(&mut Quirks)| {
        let mut quirks = Quirks::default();
        change(&mut quirks);
        quirks
    };
    for (kind, quirks, words) in [
        (
            Kind::Plain,
            Quirks::default(),
            &["token ids", "log-probs of the sampled", "load new weights"][..],
        ),
        (
            Kind::Llama,
            Quirks::default(),
            &["load new weights", "llama.cpp can only measure"],
        ),
        (
            Kind::Sglang,
            quirks(|q| q.no_logprobs = true),
            &["log-probs of the sampled ids"],
        ),
        (
            Kind::Vllm,
            quirks(|q| q.no_loader = true),
            &["VLLM_SERVER_DEV_MODE=1"],
        ),
        (Kind::Vllm, Quirks::default(), &["weights_folder"]),
        (
            Kind::Sglang,
            quirks(|q| q.other_text = true),
            &["tokenizer"],
        ),
    ] {
        let fake = Fake::toy(kind, quirks);
        let told = said(training(&experiment(&fake, kind, true)));
        for word in words {
            assert!(told.contains(word), "{kind:?}: {word:?} in {told}");
        }
        let mut engine = measuring(&experiment(&fake, kind, false)).unwrap();
        let turn = engine.generate(&[request(1, &STOPS)]).unwrap().remove(0);
        assert!(!turn.ids.is_empty(), "{kind:?}");
    }
}

#[test]
fn vllm_must_have_been_started_with_the_folder_that_is_written() {
    let quirks = Quirks {
        root: Some("/models/other".into()),
        ..Quirks::default()
    };
    let fake = Fake::toy(Kind::Vllm, quirks);
    let folder = tempfile::tempdir().unwrap();
    let mut experiment = experiment(&fake, Kind::Vllm, true);
    server(&mut experiment).weights_folder = folder.path().display().to_string();
    let told = said(training(&experiment));
    assert!(
        told.contains("/models/other") && told.contains("server_folder"),
        "{told}"
    );
    server(&mut experiment).server_folder = "/models/other/".into();
    training(&experiment).unwrap();
}

#[test]
fn without_scores_of_the_server_the_learner_scores_unless_the_server_is_asked_for() {
    let blind = Quirks {
        no_scores: true,
        ..Quirks::default()
    };
    let fake = Fake::toy(Kind::Sglang, blind);
    let mut experiment = experiment(&fake, Kind::Sglang, true);
    let mut engine = training(&experiment).unwrap();
    let request = |temperature, under| ScoreRequest {
        id: id(0),
        trunk: (20..40).collect(),
        score_trunk: true,
        branches: Vec::new(),
        temperature,
        under,
    };
    let before = fake.hits();
    let scored = engine.score(&[request(1.0, Weights::Policy)]).unwrap();
    assert_eq!(fake.hits(), before);
    let toy = Toy::new(&tokenizer());
    assert_eq!(
        scored[0].trunk[1..],
        toy.score(&(20..40).collect::<Vec<_>>())
    );
    server(&mut experiment).scoring = ScoringSetting::Server;
    let told = said(training(&experiment));
    assert!(
        told.contains("log-probs of a prompt") && told.contains("auto"),
        "{told}"
    );

    // Other temperatures and the frozen reference are the learner's also where the server scores.
    let fake = Fake::toy(Kind::Sglang, Quirks::default());
    let mut engine = training(&self::experiment(&fake, Kind::Sglang, true)).unwrap();
    engine.score(&[request(1.0, Weights::Policy)]).unwrap();
    let before = fake.hits();
    let mixed = [
        request(0.5, Weights::Policy),
        request(1.0, Weights::Policy),
        request(1.0, Weights::Reference),
    ];
    let scored = engine.score(&mixed).unwrap();
    assert_eq!(fake.hits(), before + 1);
    let mut learner = ToyLearner(Arc::new(Toy::new(&tokenizer())));
    assert_eq!(scored, learner.score(&mixed).unwrap());
}

#[test]
fn the_handshake_tells_kind_version_and_abilities() {
    let quirks = Quirks {
        context: Some(2048),
        root: Some("/models/policy".into()),
        ..Quirks::default()
    };
    for (kind, product, loader) in [
        (
            Kind::Sglang,
            "SGLang 0.5.2",
            Some(Loader::FromDisk { pauses: true }),
        ),
        (Kind::Vllm, "vLLM 0.14.0", Some(Loader::Reload)),
        (Kind::Llama, "llama.cpp b6000", None),
    ] {
        let fake = Fake::toy(kind, quirks.clone());
        let engine = measuring(&experiment(&fake, kind, false)).unwrap();
        let can = engine.capabilities();
        assert_eq!((can.product.as_str(), can.loader), (product, loader));
        assert_eq!(
            (can.ids, can.logprobs, can.same_text),
            (true, true, Some(true))
        );
        assert_eq!(can.context, Some(2048));
    }
    let short = Quirks {
        context: Some(512),
        ..Quirks::default()
    };
    let fake = Fake::toy(Kind::Sglang, short);
    let told = said(measuring(&experiment(&fake, Kind::Sglang, false)));
    assert!(
        told.contains("--context-length") && told.contains("512"),
        "{told}"
    );
}

#[test]
fn the_wrong_kind_of_server_an_unknown_model_and_a_missing_key_are_named() {
    let fake = Fake::toy(Kind::Vllm, Quirks::default());
    let told = said(measuring(&experiment(&fake, Kind::Sglang, false)));
    assert!(told.contains("openai(url: ..)"), "{told}");
    let mut unknown = experiment(&fake, Kind::Vllm, false);
    server(&mut unknown).model = "other".into();
    let told = said(measuring(&unknown));
    assert!(
        told.contains("\"other\"") && told.contains("name one of toy"),
        "{told}"
    );

    // The key of this test is a variable that every process has.
    let key = std::env::var("PATH").unwrap();
    let locked = Quirks {
        key: Some(format!("Bearer {key}")),
        ..Quirks::default()
    };
    let fake = Fake::toy(Kind::Vllm, locked);
    let mut keyless = experiment(&fake, Kind::Vllm, false);
    let told = said(measuring(&keyless));
    assert!(
        told.contains("401") && told.contains("api_key_env"),
        "{told}"
    );
    server(&mut keyless).api_key_env = "PATH".into();
    measuring(&keyless).unwrap();
}

#[test]
fn transient_troubles_cost_a_try_and_lasting_ones_an_error() {
    let fake = Fake::toy(Kind::Sglang, Quirks::default());
    let mut engine = measuring(&experiment(&fake, Kind::Sglang, false)).unwrap();
    let before = fake.hits();
    fake.trouble(&[
        Trouble::Status(500),
        Trouble::Truncated,
        Trouble::Status(429),
        Trouble::Status(503),
    ]);
    let turn = engine.generate(&[request(1, &STOPS)]).unwrap().remove(0);
    assert_exact(&turn, &request(1, &STOPS));
    assert_eq!(fake.hits(), before + 5);

    fake.trouble(&[Trouble::Status(400)]);
    let before = fake.hits();
    let told = said(engine.generate(&[request(1, &STOPS)]));
    assert!(told.contains("status 400"), "{told}");
    assert_eq!(fake.hits(), before + 1, "a refusal was tried again");
    fake.trouble(&[Trouble::Garbage]);
    let told = said(engine.generate(&[request(1, &STOPS)]));
    assert!(told.contains("no JSON"), "{told}");
    fake.trouble(&vec![Trouble::Status(500); 5]);
    let told = said(engine.generate(&[request(1, &STOPS)]));
    assert!(told.contains("status 500 5 times"), "{told}");
    assert_eq!(engine.generate(&[request(1, &STOPS)]).unwrap().len(), 1);
}

#[test]
fn a_lying_server_is_caught_whatever_it_lies_about() {
    for kind in [Kind::Sglang, Kind::Vllm] {
        for (lie, word) in [
            (Lie::FewerLogprobs, "log-probs"),
            (Lie::NoNumber, "number of at most 0"),
            (Lie::CertainAndMore, "number of at most 0"),
            (Lie::ImpossibleButSampled, "that was sampled"),
            (Lie::IdOutOfVocabulary, "999999"),
            (Lie::TooManyIds, "asked for"),
            (Lie::NoIds, "empty"),
            (Lie::OtherPrompt, "adds or cuts ids"),
            (Lie::Aborted, "abort"),
        ] {
            let fake = Fake::toy(kind, Quirks::default());
            let mut engine = measuring(&experiment(&fake, kind, false)).unwrap();
            fake.lie(lie);
            let error = engine.generate(&[request(1, &STOPS)]).err();
            assert!(
                matches!(
                    &error,
                    Some(EngineError::Remote(RemoteError::BadReply { .. }))
                ),
                "{kind:?} {lie:?}: {error:?}"
            );
            let told = error.unwrap().to_string();
            assert!(told.contains(word), "{kind:?} {lie:?}: {told}");
            assert!(told.contains("turn 1 of trajectory 0/0/1"), "{told}");
        }
        for lie in [Lie::ShiftedScores, Lie::FewerScores] {
            let fake = Fake::toy(kind, Quirks::default());
            let mut engine = measuring(&experiment(&fake, kind, false)).unwrap();
            fake.lie(lie);
            let scored = engine.score(&[ScoreRequest {
                id: id(0),
                trunk: (20..40).collect(),
                score_trunk: true,
                branches: Vec::new(),
                temperature: 1.0,
                under: Weights::Policy,
            }]);
            let error = scored.err();
            assert!(
                matches!(
                    error,
                    Some(EngineError::Remote(RemoteError::BadReply { .. }))
                ),
                "{kind:?} {lie:?}: {error:?}"
            );
        }
    }
}

#[test]
fn a_hundred_and_twenty_requests_are_under_way_at_once() {
    let fake = Fake::toy(Kind::Sglang, Quirks::default());
    let mut engine = measuring(&experiment(&fake, Kind::Sglang, false)).unwrap();
    // No answer before all of them have come: fewer at once would never end.
    *fake.state.gate.lock().unwrap() = Some(Arc::new(tokio::sync::Barrier::new(120)));
    let requests: Vec<GenerateRequest> = (0..120)
        .map(|number| GenerateRequest {
            max_new_tokens: 3,
            ..request(number, &STOPS)
        })
        .collect();
    let turns = engine.generate(&requests).unwrap();
    for (turn, request) in turns.iter().zip(&requests) {
        assert_eq!(turn.id, request.id);
        assert_exact(turn, request);
    }
}

#[test]
fn the_first_failure_drops_every_other_request_with_its_connection() {
    let fake = Fake::toy(Kind::Sglang, Quirks::default());
    let mut engine = measuring(&experiment(&fake, Kind::Sglang, false)).unwrap();
    let mut requests: Vec<GenerateRequest> = (0..20).map(|n| request(n, &STOPS)).collect();
    requests[7].context.push(77);
    *fake.state.hang.lock().unwrap() = Some((77, 19));
    let told = said(engine.generate(&requests));
    assert!(told.contains("this one is bad"), "{told}");
    // The server sees them go; how soon is its affair.
    while fake.state.hanging.load(Ordering::SeqCst) > 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    *fake.state.hang.lock().unwrap() = None;
    assert_eq!(engine.generate(&requests).unwrap().len(), 20);
}

#[test]
fn seeds_depend_on_the_place_of_a_token_and_on_nothing_else() {
    let fake = Fake::toy(Kind::Vllm, Quirks::default());
    let mut engine = measuring(&experiment(&fake, Kind::Vllm, false)).unwrap();
    let alone = engine.generate(&[request(5, &STOPS)]).unwrap().remove(0);
    let many: Vec<GenerateRequest> = (0..9).map(|n| request(n, &STOPS)).collect();
    let among = engine.generate(&many).unwrap();
    assert_eq!(alone, among[5]);
    assert_ne!(among[4].ids, among[5].ids);
    let later = GenerateRequest {
        turn: 2,
        ..request(5, &STOPS)
    };
    assert_ne!(engine.generate(&[later]).unwrap()[0].ids, alone.ids);
}

#[test]
fn a_run_that_only_measures_saves_where_the_weights_are() {
    let folder = tempfile::tempdir().unwrap();
    let mut saved = NoLearner::new(tokenizer(), "http://there:1".into());
    saved.save(folder.path(), true).unwrap();
    let text = std::fs::read_to_string(folder.path().join("server.json")).unwrap();
    assert!(text.contains("http://there:1"), "{text}");
    let path = folder.path();
    assert!(palimpsest::tokenizer::TextTokenizer::load(path).is_ok());
    assert!(said(saved.supervise(&supervised())).contains("learner.steps"));
}

/// Runs of the real program, with a server that thinks with an engine in libtorch of its own.
#[cfg(feature = "torch")]
mod whole {
    use super::*;
    use fake_server::Local;
    use palimpsest::record::{Event, read_events};
    use std::path::Path;
    use std::process::{Command, Output, Stdio};

    fn run(file: &str, folder: &Path, settings: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_palimpsest"));
        command
            .args(["--experiment", file, "--run-dir"])
            .arg(folder);
        for setting in settings {
            command.args(["--set", setting]);
        }
        command
            .env("OMP_WAIT_POLICY", "passive")
            .env("OMP_NUM_THREADS", "1")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Two steps of the shipped policy, which writes notes that can be scored.
    const LEARNING: [&str; 8] = [
        "rollout.groups=2",
        "rollout.group_size=4",
        "learner.steps=2",
        "record.checkpoint_every=1",
        "evaluation.every=1",
        "evaluation.questions=2",
        "evaluation.objectives=[2]",
        "evaluation.questions_during=2",
    ];

    #[test]
    fn a_training_run_learns_here_and_generates_and_scores_there() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("there");
        let local = Arc::new(Local::new("assets/lookup/policy"));
        let fake = Fake::start(Kind::Sglang, Quirks::default(), local);
        let generator = format!("engine.generator=sglang(url: {:?})", fake.url);
        let quickstart = "experiments/quickstart.ron";
        let done = run(quickstart, &there, &[&LEARNING[..], &[&generator]].concat());
        let told = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{told}");
        assert!(told.contains("SGLang 0.5.2"), "{told}");
        let (events, _) = read_events(&there).unwrap();
        let turns = events
            .iter()
            .filter(|recorded| matches!(recorded.event, Event::TurnGenerated(_)))
            .count();
        assert!(turns > 16, "{turns}");
        let trouble = events
            .iter()
            .find(|recorded| matches!(recorded.event, Event::TroubleFound { .. }));
        assert!(trouble.is_none(), "{trouble:?}");
        // For the first evaluation, and after each of two updates.
        let loads = fake
            .steps()
            .iter()
            .filter(|step| step.contains("update_weights"))
            .count();
        assert_eq!(loads, 3);
        let bodies = fake.state.bodies.lock().unwrap();
        let scores = bodies.iter().filter(|body| {
            let start = body["logprob_start_len"].as_i64();
            start.is_some_and(|start| start > 2)
        });
        assert!(scores.count() > 8, "no memories were scored on the server");
        let weights = |run: &Path, at: &str| {
            std::fs::read(run.join("checkpoints").join(at).join("model.safetensors")).unwrap()
        };
        assert!(weights(&there, "step-00000") != weights(&there, "final"));
    }

    #[test]
    fn a_run_that_only_measures_needs_neither_updates_nor_libtorch() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let local = Arc::new(Local::new("assets/lookup/policy"));
        let fake = Fake::start(Kind::Llama, Quirks::default(), local);
        let generator = format!("engine.generator=openai(url: {:?})", fake.url);
        let settings = [
            generator.as_str(),
            "learner.steps=0",
            "cold_start.stages=[]",
            "policy=Folder(\"assets/lookup/policy\")",
        ];
        let done = run("experiments/smoke.ron", &path, &settings);
        let told = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{told}");
        let (events, _) = read_events(&path).unwrap();
        let right: Vec<f64> = events
            .iter()
            .filter_map(|recorded| match &recorded.event {
                Event::Evaluated(line) => Some(line.em),
                _ => None,
            })
            .collect();
        assert!(
            right.iter().sum::<f64>() > 0.0,
            "the shipped policy answers nothing: {right:?}"
        );
        assert!(path.join("checkpoints/final/server.json").exists());
    }

    #[test]
    fn a_run_that_needs_more_than_the_server_can_leaves_no_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let fake = Fake::toy(Kind::Llama, Quirks::default());
        let generator = format!("engine.generator=openai(url: {:?})", fake.url);
        let smoke = "experiments/smoke.ron";
        let refused = run(smoke, &path, &[&generator]);
        let told = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{told}");
        assert!(told.contains("load new weights"), "{told}");
        assert!(!path.exists(), "a run folder was made for nothing");
        let nowhere = run(
            smoke,
            &path,
            &["engine.generator=sglang(url: \"localhost:30000\")"],
        );
        let told = String::from_utf8_lossy(&nowhere.stderr);
        assert_eq!(nowhere.status.code(), Some(2), "{told}");
        assert!(told.contains("http://127.0.0.1:30000"), "{told}");
    }
}
