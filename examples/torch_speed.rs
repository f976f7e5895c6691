//! Times the libtorch engine at the size of the tiny recipe, on one thread:
//! `cargo run --example torch_speed`. CPU seconds, so that other work on the machine counts little.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

#[cfg(not(feature = "torch"))]
fn main() {
    println!("build with the feature torch");
}

#[cfg(feature = "torch")]
fn main() {
    timing::main();
}

#[cfg(feature = "torch")]
mod timing {
    use std::path::Path;
    use std::sync::Arc;

    use palimpsest::engine::*;
    use palimpsest::experiment::{DecoderSettings, DeviceSetting, EngineSettings};
    use palimpsest::torch::{TorchEngine, Vocabulary};
    use palimpsest::trajectory::TrajectoryId;

    const VOCABULARY: u32 = 1536;
    const GROUPS: u32 = 8;
    const MEMBERS: u32 = 16;
    const TURNS: u32 = 4;
    const TURN_TOKENS: usize = 60;
    const TOOL_TOKENS: usize = 22;

    struct Wordless;

    impl Vocabulary for Wordless {
        fn size(&self) -> usize {
            VOCABULARY as usize
        }
        fn bytes(&self, _: u32) -> &[u8] {
            b"word"
        }
        fn save(&self, _: &Path) -> Result<(), EngineError> {
            Ok(())
        }
    }

    /// CPU seconds of this thread so far.
    fn cpu_seconds() -> f64 {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let nanoseconds: f64 = text
            .split(' ')
            .next()
            .and_then(|word| word.parse().ok())
            .unwrap_or(0.0);
        nanoseconds * 1e-9
    }

    fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
        let start = cpu_seconds();
        let result = work();
        println!("{what:<44} {:.3} s", cpu_seconds() - start);
        result
    }

    fn ids(seed: u32, length: usize) -> Vec<u32> {
        let mut x = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
        (0..length)
            .map(|_| {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                13 + (x >> 16) % (VOCABULARY - 13)
            })
            .collect()
    }

    pub fn main() {
        let shape = DecoderSettings {
            hidden_size: 96,
            num_hidden_layers: 3,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            intermediate_size: 192,
            rope_theta: 1000.0,
            max_position_embeddings: 1024,
            initializer_range: 0.02,
            vocab_size: i64::from(VOCABULARY),
        };
        let settings = EngineSettings {
            device: DeviceSetting::Auto,
            threads: 1,
            ..EngineSettings::default()
        };
        let mut engine = TorchEngine::new(&shape, 1, Arc::new(Wordless), &settings).unwrap();
        println!("{} weights", engine.parameter_count());
        for round in 0..2 {
            println!("round {round}");
            step(&mut engine, round);
        }
        timed("10 supervised steps", || {
            for step in 0..10 {
                engine.supervise(&cold_start(step)).unwrap();
            }
        });
    }

    fn step(engine: &mut TorchEngine, step: u32) {
        let names: Vec<TrajectoryId> = (0..GROUPS * MEMBERS)
            .map(|n| TrajectoryId {
                step,
                group: n / MEMBERS,
                member: n % MEMBERS,
                ..TrajectoryId::default()
            })
            .collect();
        let mut contexts: Vec<Vec<u32>> = names.iter().map(|id| ids(id.group, 24)).collect();
        let mut rows: Vec<LearnRow> = contexts
            .iter()
            .map(|context| LearnRow {
                ids: context.clone(),
                mask: vec![false; context.len()],
                old_logprobs: vec![0.0; context.len()],
                advantages: vec![0.0; context.len()],
            })
            .collect();
        let mut places: Vec<Vec<u32>> = vec![Vec::new(); names.len()];
        timed("4 turns of 128 rows x 60 tokens", || {
            for turn in 0..TURNS {
                let requests: Vec<GenerateRequest> = names
                    .iter()
                    .zip(&contexts)
                    .map(|(&id, context)| GenerateRequest {
                        id,
                        turn,
                        context: context.clone(),
                        // Ragged: members end at different times.
                        max_new_tokens: (TURN_TOKENS - (id.member % 5) as usize * 4) as u32,
                        sampling: Sampling::plain(1.0, 3),
                        stop: Arc::from(vec!["</search>".to_owned(), "</answer>".to_owned()]),
                        ignore_eos: false,
                    })
                    .collect();
                let start = cpu_seconds();
                let turns = engine.generate(&requests).unwrap();
                println!("    turn {turn}: {:.3} s", cpu_seconds() - start);
                for (i, written) in turns.iter().enumerate() {
                    contexts[i].extend(&written.ids);
                    places[i].push(contexts[i].len() as u32 - 10);
                    let row = &mut rows[i];
                    row.mask.resize(contexts[i].len(), true);
                    row.old_logprobs.extend(&written.logprobs);
                    row.advantages
                        .resize(contexts[i].len(), (i % 3) as f32 - 1.0);
                    let tool = ids(turn + 100, TOOL_TOKENS);
                    contexts[i].extend(&tool);
                    row.mask.resize(contexts[i].len(), false);
                    row.old_logprobs.resize(contexts[i].len(), 0.0);
                    row.advantages.resize(contexts[i].len(), 0.0);
                    row.ids.clone_from(&contexts[i]);
                }
            }
        });
        engine.release(&names);
        let request = |i: usize, trunk: Vec<u32>, branches: Vec<Branch>| ScoreRequest {
            id: names[i],
            trunk,
            score_trunk: false,
            branches,
            temperature: 1.0,
            under: Weights::Policy,
        };
        let branch = |i: usize, at: u32| Branch {
            at,
            ids: ids(i as u32 / MEMBERS, 34),
            scored_from: 4,
        };
        timed("P_full: 128 trunks with 3 branches of 34", || {
            let requests: Vec<ScoreRequest> = (0..names.len())
                .map(|i| {
                    let branches = places[i][1..].iter().map(|&at| branch(i, at));
                    request(i, contexts[i].clone(), branches.collect())
                })
                .collect();
            engine.score(&requests).unwrap()
        });
        timed("P_memory: 384 prompts with notes of 20", || {
            let requests: Vec<ScoreRequest> = (0..names.len() * 3)
                .map(|n| {
                    let mut trunk = ids(n as u32 / 48, 24);
                    trunk.extend(ids(n as u32, 20));
                    let at = trunk.len() as u32;
                    request(n / 3, trunk, vec![branch(n / 3, at)])
                })
                .collect();
            engine.score(&requests).unwrap()
        });
        let tokens: usize = rows.iter().map(|r| r.ids.len()).sum();
        let (even, odd) = (0..rows.len()).partition(|i| i % 2 == 0);
        let batch = LearnBatch {
            rows,
            mini_batches: vec![even, odd],
            knobs: LearnKnobs {
                lr: 3e-4,
                ..LearnKnobs::default()
            },
        };
        let report = timed("learn: 128 rows, 2 mini-batches", || engine.learn(&batch));
        println!("    {tokens} tokens, {:?}", report.unwrap().mini_batches[1]);
    }

    /// The recipe's mix: 8 whole trajectories, 12 single turns, 4 probes, 6 + 6 drills.
    fn cold_start(step: u32) -> SupervisedBatch {
        let part = |name: &str, count: u32, length: usize, weight: f32, gap: u32| SupervisedPart {
            name: name.into(),
            weight,
            rows: (0..count)
                .map(|n| SupervisedRow {
                    ids: ids(n + 1000 * step, length + 5 * n as usize),
                    mask: (0..length + 5 * n as usize).map(|i| i > 20).collect(),
                    positions: (0..(length + 5 * n as usize) as u32)
                        .map(|i| i + if i > 30 { gap } else { 0 })
                        .collect(),
                })
                .collect(),
        };
        SupervisedBatch {
            parts: vec![
                part("full", 8, 320, 1.0, 5),
                part("deployed", 12, 110, 1.0, 5),
                part("probe", 4, 90, 0.3, 5),
                part("drill", 6, 180, 0.5, 0),
                part("copy", 6, 40, 0.3, 0),
            ],
            matrix_lr: 3e-3,
            other_lr: 5e-3,
            beta2: 0.98,
            weight_decay: 0.01,
            grad_clip: 1.0,
            aid_weight: 2.0,
            address: (1, step),
        }
    }
}
