//! A learn step of the libtorch engine: forward, PPO loss, backward, clip, AdamW, on rows whose lengths vary 4x.
//!
//! `cargo bench --bench learn -- [--size tiny|smollm2] [--model DIR] [--threads N] [--step plain|recompute|lora|lora-recompute]
//! [--micro-tokens N]`
//!
//! prints the seconds of a step and the peak memory of the process. With `--serve DIR` it writes the weights (unless
//! `--model` names them) and the rows into DIR, and then makes a step for each line of its input, so that
//! `benches/peer_learn.py` can let PyTorch make the same step in turn.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[cfg(not(feature = "torch"))]
fn main() {
    println!("build with the feature torch");
}

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

    use palimpsest::engine::{Engine, EngineError, LearnBatch, LearnKnobs, LearnRow};
    use palimpsest::experiment::{
        DecoderSettings, DeviceSetting, EngineSettings, LoraSettings, Recompute,
    };
    use palimpsest::torch::{TorchEngine, Vocabulary};
    use serde_json::{Value, json};

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

    /// Shortest row; the longest has four times as many ids.
    const SHORTEST: usize = 128;

    fn after(name: &str) -> Option<String> {
        let given: Vec<String> = std::env::args().collect();
        let place = given.iter().position(|word| word == name)?;
        given.get(place + 1).cloned()
    }

    pub fn main() {
        let size = after("--size").unwrap_or_else(|| "tiny".into());
        let threads = after("--threads").map_or(1, |n| n.parse().unwrap());
        let settings = EngineSettings {
            device: DeviceSetting::Cpu,
            threads,
            ..EngineSettings::default()
        };
        let shape = match size.as_str() {
            "tiny" => DecoderSettings::default(),
            "smollm2" => DecoderSettings {
                hidden_size: 576,
                num_hidden_layers: 30,
                num_attention_heads: 9,
                num_key_value_heads: 3,
                intermediate_size: 1536,
                rope_theta: 100_000.0,
                vocab_size: 49_152,
                ..DecoderSettings::default()
            },
            other => panic!("--size {other}: tiny or smollm2"),
        };
        let vocabulary = Arc::new(Wordless(shape.vocab_size as usize));
        let model = after("--model").map(PathBuf::from);
        let mut engine = match &model {
            Some(model) => TorchEngine::from_folder(model, vocabulary, &settings).unwrap(),
            None => TorchEngine::new(&shape, 1, vocabulary, &settings).unwrap(),
        };
        let step = after("--step").unwrap_or_else(|| "plain".into());
        let rows =
            after("--rows").map_or(if size == "tiny" { 64 } else { 8 }, |n| n.parse().unwrap());
        let mut batch = batch(shape.vocab_size as u32, rows);
        batch.knobs.micro_tokens = after("--micro-tokens").map_or(0, |n| n.parse().unwrap());
        match step.as_str() {
            "plain" => {}
            "recompute" => batch.knobs.recompute = Recompute::Always,
            "lora" => engine.begin_adapters(&LoraSettings::default(), 1).unwrap(),
            "lora-recompute" => {
                engine.begin_adapters(&LoraSettings::default(), 1).unwrap();
                batch.knobs.recompute = Recompute::Always;
            }
            other => panic!("--step {other}: plain, recompute, lora or lora-recompute"),
        }
        let loaded = memory("VmRSS");
        let mut make = || -> Value {
            let started = Instant::now();
            let report = engine.learn(&batch).unwrap();
            let seconds = started.elapsed().as_secs_f64();
            let mini = report.mini_batches[0];
            json!({
                "size": size, "threads": threads, "step": step, "seconds": seconds,
                "tokens": batch.rows.iter().map(|row| row.ids.len()).sum::<usize>(),
                "trained": mini.tokens, "loss": mini.pg_loss, "grad_norm": mini.grad_norm,
                "loaded_mib": loaded, "peak_mib": memory("VmHWM"),
            })
        };
        let Some(folder) = after("--serve").map(PathBuf::from) else {
            println!("{}", make());
            return;
        };
        if model.is_none() {
            let mut fresh = TorchEngine::new(
                &shape,
                1,
                Arc::new(Wordless(shape.vocab_size as usize)),
                &settings,
            )
            .unwrap();
            fresh.save(&folder, false).unwrap();
        }
        let rows = rows_json(shape.vocab_size as u32, rows);
        std::fs::write(folder.join("rows.json"), rows.to_string()).unwrap();
        println!("ready");
        for line in std::io::stdin().lock().lines() {
            line.unwrap();
            println!("{}", make());
        }
    }

    /// What the system says of this process's memory, in MiB.
    fn memory(what: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with(what));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kib.unwrap_or(0) / 1024
    }

    fn mixed(x: u32) -> u32 {
        let mut x = x.wrapping_add(0x9e37_79b9);
        x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
        x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
        x ^ (x >> 16)
    }

    /// Rows of 128 to 512 ids in a mixed order. An agent's turns of 32 ids are trained, and the tools' in between
    /// are not.
    fn batch(vocabulary: u32, count: usize) -> LearnBatch {
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|&n| mixed(n as u32));
        let row = |&place: &usize| {
            let length = SHORTEST + 3 * SHORTEST * place / (count - 1).max(1);
            let mask = (0..length).map(|i| (i / 32) % 2 == 1).collect();
            LearnRow {
                ids: (0..length)
                    .map(|i| mixed((place * 4096 + i) as u32) % vocabulary)
                    .collect(),
                mask,
                old_logprobs: (0..length)
                    .map(|i| -((vocabulary as f32).ln()) - (i % 5) as f32 * 0.05)
                    .collect(),
                advantages: vec![if place % 2 == 0 { 1.0 } else { -1.0 }; length],
            }
        };
        LearnBatch {
            rows: order.iter().map(row).collect(),
            mini_batches: vec![(0..count).collect()],
            knobs: LearnKnobs {
                lr: 1e-6,
                betas: (0.9, 0.95),
                ..LearnKnobs::default()
            },
        }
    }

    fn rows_json(vocabulary: u32, count: usize) -> Value {
        let rows = batch(vocabulary, count).rows;
        let rows: Vec<Value> = rows
            .iter()
            .map(|row| {
                json!({"ids": row.ids, "mask": row.mask, "old": row.old_logprobs, "advantages": row.advantages})
            })
            .collect();
        json!(rows)
    }
}
