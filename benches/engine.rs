//! Generation and scoring of the libtorch engine, one JSON object a case:
//!
//! `cargo bench --bench engine -- [--size tiny|smollm2] [--threads N] [--cases a,b]`
//!
//! With `--serve DIR` it writes weights (a Hugging Face folder) and the workload into DIR and then runs
//! the case that each line of its input names, so that `benches/peer.py` can let transformers do the same
//! work in turn. Weights are random: the arithmetic does not depend on them.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[cfg(not(feature = "torch"))]
fn main() {
    println!("build with the feature torch");
}

#[cfg(feature = "torch")]
#[path = "engine/workload.rs"]
mod workload;

#[cfg(feature = "torch")]
fn main() {
    bench::main();
}

#[cfg(feature = "torch")]
mod bench {
    use std::io::BufRead as _;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::Instant;

    use palimpsest::engine::{
        Branch, Engine, EngineError, GenerateRequest, Sampling, ScoreRequest, Weights,
    };
    use palimpsest::experiment::{DecoderSettings, DeviceSetting, EngineSettings};
    use palimpsest::torch::{TorchEngine, Vocabulary};
    use palimpsest::trajectory::TrajectoryId;
    use serde_json::{Value, json};

    use super::workload::{ANSWER, Workload, ids};

    struct Wordless(usize);

    impl Vocabulary for Wordless {
        fn size(&self) -> usize {
            self.0
        }
        fn bytes(&self, _: u32) -> &[u8] {
            b"word"
        }
        fn save(&self, _: &Path) -> Result<(), EngineError> {
            Ok(())
        }
    }

    /// The shipped policy's size, and SmolLM2-135M's.
    fn shape(size: &str) -> DecoderSettings {
        let tiny = DecoderSettings {
            max_position_embeddings: 4096,
            ..DecoderSettings::default()
        };
        match size {
            "tiny" => tiny,
            "smollm2" => DecoderSettings {
                hidden_size: 576,
                num_hidden_layers: 30,
                num_attention_heads: 9,
                num_key_value_heads: 3,
                intermediate_size: 1536,
                rope_theta: 100_000.0,
                vocab_size: 49_152,
                ..tiny
            },
            other => panic!("--size {other}: tiny or smollm2"),
        }
    }

    struct Arguments {
        size: String,
        threads: u32,
        cases: Vec<String>,
        serve: Option<PathBuf>,
        trajectories: u32,
    }

    fn arguments() -> Arguments {
        let given: Vec<String> = std::env::args().collect();
        let after = |name: &str| {
            let place = given.iter().position(|word| word == name)?;
            given.get(place + 1).cloned()
        };
        let cases = "decode-1,decode-16,decode-64,multi-turn,\
                     one-pass-2,one-pass-4,one-pass-8,one-pass-16,per-context-8";
        Arguments {
            size: after("--size").unwrap_or_else(|| "tiny".into()),
            threads: after("--threads").map_or(1, |n| n.parse().unwrap()),
            cases: after("--cases")
                .unwrap_or_else(|| cases.into())
                .split(',')
                .map(str::to_owned)
                .collect(),
            serve: after("--serve").map(PathBuf::from),
            trajectories: after("--trajectories").map_or(64, |n| n.parse().unwrap()),
        }
    }

    pub fn main() {
        let arguments = arguments();
        let shape = shape(&arguments.size);
        let work = Workload::new(shape.vocab_size as u32, arguments.trajectories);
        let settings = EngineSettings {
            device: DeviceSetting::Cpu,
            threads: arguments.threads,
            ..EngineSettings::default()
        };
        let vocabulary = Arc::new(Wordless(shape.vocab_size as usize));
        let mut runner = Runner {
            engine: TorchEngine::new(&shape, 1, vocabulary, &settings).unwrap(),
            work,
            round: 0,
        };
        let about = |case: &str, mut result: Value| {
            let more = json!({"case": case, "size": arguments.size, "threads": arguments.threads});
            let fields = result.as_object_mut().unwrap();
            fields.extend(more.as_object().unwrap().clone());
            result
        };
        if let Some(folder) = &arguments.serve {
            runner.engine.save(folder, false).unwrap();
            let text = serde_json::to_vec(&runner.work.to_json()).unwrap();
            std::fs::write(folder.join("workload.json"), text).unwrap();
            println!("ready");
            for line in std::io::stdin().lock().lines() {
                let case = line.unwrap();
                println!("{}", about(&case, runner.run(&case)));
            }
            return;
        }
        for case in &arguments.cases {
            runner.run(case);
            let mut results: Vec<Value> = (0..5).map(|_| runner.run(case)).collect();
            results.sort_by(|a, b| {
                let seconds = |x: &Value| x["seconds"].as_f64().unwrap();
                seconds(a).total_cmp(&seconds(b))
            });
            println!("{}", about(case, results.swap_remove(2)));
        }
    }

    struct Runner {
        engine: TorchEngine,
        work: Workload,
        /// Names of trajectories are new in every round.
        round: u32,
    }

    impl Runner {
        fn run(&mut self, case: &str) -> Value {
            self.round += 1;
            let (name, number) = match case.rsplit_once('-') {
                Some((name, number)) if number.parse::<u32>().is_ok() => {
                    (name, number.parse().unwrap())
                }
                _ => (case, 0),
            };
            match name {
                "decode" => self.decode(number),
                "multi-turn" => self.multi_turn(),
                "one-pass" => self.score(number as usize, false),
                "per-context" => self.score(number as usize, true),
                _ => panic!("no case {case:?}"),
            }
        }

        fn name(&self, number: usize) -> TrajectoryId {
            TrajectoryId {
                step: self.round,
                group: number as u32 / 8,
                member: number as u32 % 8,
                ..TrajectoryId::default()
            }
        }

        fn request(
            &self,
            number: usize,
            turn: usize,
            context: Vec<u32>,
            new: u32,
        ) -> GenerateRequest {
            GenerateRequest {
                id: self.name(number),
                turn: turn as u32,
                context,
                max_new_tokens: new,
                sampling: Sampling::plain(1.0, 3),
                stop: Arc::from(vec!["</search>".to_owned(), "</answer>".to_owned()]),
                ignore_eos: false,
            }
        }

        /// `batch` different prompts, all of one length.
        fn decode(&mut self, batch: u32) -> Value {
            let requests: Vec<GenerateRequest> = (0..batch as usize)
                .map(|n| {
                    let prompt = self.work.prompt(1000 + n as u32);
                    self.request(n, 0, prompt, self.work.decode_new)
                })
                .collect();
            let scheduling = self.engine.scheduling_seconds();
            let started = Instant::now();
            self.engine.submit(requests).unwrap();
            let (mut tokens, mut steps) = (0, 0u32);
            while self.engine.unfinished() > 0 {
                let turns = self.engine.step().unwrap();
                tokens += turns.iter().map(|turn| turn.ids.len()).sum::<usize>();
                steps += 1;
            }
            let seconds = started.elapsed().as_secs_f64();
            let scheduling = self.engine.scheduling_seconds() - scheduling;
            self.forget(batch as usize);
            json!({
                "tokens": tokens, "seconds": seconds, "tokens_per_s": tokens as f64 / seconds,
                "steps": steps, "step_ms": 1e3 * seconds / f64::from(steps),
                "scheduling_ms": 1e3 * scheduling / f64::from(steps),
            })
        }

        /// Every trajectory goes on as soon as its turn has ended; tools answer at once.
        fn multi_turn(&mut self) -> Value {
            let work = &self.work;
            let count = work.trajectories as usize;
            let mut contexts: Vec<Vec<u32>> =
                (0..count).map(|n| work.prompt(n as u32 / 8)).collect();
            let first = contexts
                .iter()
                .enumerate()
                .map(|(n, context)| self.request(n, 0, context.clone(), work.new_ids[0][n]))
                .collect();
            let scheduling = self.engine.scheduling_seconds();
            let started = Instant::now();
            self.engine.submit(first).unwrap();
            let (mut tokens, mut steps) = (0, 0);
            while self.engine.unfinished() > 0 {
                let turns = self.engine.step().unwrap();
                steps += 1;
                let mut next = Vec::new();
                for written in turns {
                    let n = (written.id.group * 8 + written.id.member) as usize;
                    tokens += written.ids.len();
                    let turn = written.turn as usize + 1;
                    if turn < self.work.new_ids.len() {
                        contexts[n].extend(&written.ids);
                        contexts[n].extend(&self.work.tools[turn - 1][n]);
                        let new = self.work.new_ids[turn][n];
                        next.push(self.request(n, turn, contexts[n].clone(), new));
                    }
                }
                if !next.is_empty() {
                    self.engine.submit(next).unwrap();
                }
            }
            let seconds = started.elapsed().as_secs_f64();
            let scheduling = self.engine.scheduling_seconds() - scheduling;
            self.forget(count);
            json!({
                "tokens": tokens, "seconds": seconds, "tokens_per_s": tokens as f64 / seconds,
                "steps": steps, "scheduling_share": scheduling / seconds,
                "longest": contexts.iter().map(Vec::len).max(),
            })
        }

        /// The gold answer after every note's full history and after the note alone: in one pass a
        /// trajectory, or each context by itself.
        fn score(&mut self, turns: usize, per_context: bool) -> Value {
            let mut requests = Vec::new();
            for n in 0..self.work.scored {
                let contexts = self.work.scored_contexts(n, turns);
                let answer = ids(self.work.vocabulary, 7_000 + n, ANSWER);
                let request = |trunk: Vec<u32>, places: &[usize]| ScoreRequest {
                    id: self.name(n as usize),
                    trunk,
                    score_trunk: false,
                    branches: places
                        .iter()
                        .map(|&at| Branch {
                            at: at as u32,
                            ids: answer.clone(),
                            scored_from: 2,
                        })
                        .collect(),
                    temperature: 1.0,
                    under: Weights::Policy,
                };
                let (full, notes) = contexts;
                if per_context {
                    let alone = full.into_iter().chain(notes);
                    requests.extend(alone.map(|context| {
                        let at = context.len();
                        vec![request(context, &[at])]
                    }));
                } else {
                    // The notes' own contexts hang on the question, which is the trunk's beginning.
                    let places: Vec<usize> = full.iter().map(Vec::len).collect();
                    let trunk = full.last().unwrap().clone();
                    let mut whole = request(trunk, &places);
                    whole.branches.extend(notes.iter().map(|context| Branch {
                        at: self.work.prompt_ids as u32,
                        ids: [&context[self.work.prompt_ids..], &answer].concat(),
                        scored_from: (context.len() - self.work.prompt_ids + 2) as u32,
                    }));
                    requests.push(vec![whole]);
                }
            }
            if !per_context {
                requests = vec![requests.concat()];
            }
            let started = Instant::now();
            let mut scored = 0;
            for request in &requests {
                let replies = self.engine.score(request).unwrap();
                scored += replies
                    .iter()
                    .map(|reply| reply.branches.len())
                    .sum::<usize>();
            }
            let seconds = started.elapsed().as_secs_f64();
            json!({"contexts": scored, "seconds": seconds, "turns": turns})
        }

        fn forget(&mut self, count: usize) {
            let names: Vec<TrajectoryId> = (0..count).map(|n| self.name(n)).collect();
            self.engine.release(&names);
        }
    }
}
