//! What an evaluation was made of: settings, data, weights, versions, seeds.

use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use palimpsest::doctor::TORCH_VERSION;
use palimpsest::experiment::{Experiment, PolicySettings, Retrieval};
use palimpsest::record::{RunFolder, fingerprint};
use serde_json::{Map, Value, json};
use twox_hash::XxHash3_128;

use super::eval::{TOKENIZER, TRANSCRIPTS};

/// Bytes read at a time.
const PIECE: usize = 1 << 20;

/// The manifest of an evaluation in a run folder.
pub fn manifest(
    experiment: &Experiment,
    folder: &RunFolder,
    trajectories: usize,
) -> anyhow::Result<Value> {
    let task = &experiment.task;
    let encoder = match &task.retrieval {
        Retrieval::Dense(folder) | Retrieval::Hybrid(folder) => folder.as_str(),
        _ => "",
    };
    let mut data = Map::new();
    for (setting, path) in [
        ("task.facts", task.facts.as_str()),
        ("task.corpus", &task.corpus),
        ("task.questions", &task.questions),
        ("task.test_questions", &task.test_questions),
        ("task.retrieval", encoder),
    ] {
        if !path.is_empty() {
            data.insert(setting.to_owned(), described(Path::new(path))?);
        }
    }
    let policy = match (&experiment.engine.generator.server(), &experiment.policy) {
        (Some(server), _) => json!({"server": server.url, "model": server.model}),
        (None, PolicySettings::Folder(folder)) => described(Path::new(folder))?,
        (None, PolicySettings::Hub(name)) => json!({"hub": name}),
        (None, PolicySettings::New(_)) => json!("new weights"),
    };
    let retriever = match &task.retrieval {
        Retrieval::Served(server) => json!(server.url),
        other => json!(format!("{other:?}")),
    };
    let text = experiment.to_ron();
    Ok(json!({
        "schema": 1,
        "palimpsest": env!("CARGO_PKG_VERSION"),
        "libtorch": TORCH_VERSION,
        "machine": format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
        "experiment": {"file": "experiment.ron", "fingerprint": fingerprint(&text)},
        "seeds": {"sampling": experiment.seed, "questions": experiment.evaluation.seed},
        "data": data,
        "policy": policy,
        "tokenizer": described(&folder.file(TOKENIZER))?,
        "retriever": retriever,
        "trajectories": trajectories,
        "transcripts": described(&folder.file(TRANSCRIPTS))?,
    }))
}

/// Name, length and hash of a file, or of every file of a folder.
fn described(path: &Path) -> anyhow::Result<Value> {
    if !path.is_dir() {
        return of_file(path);
    }
    let mut names: Vec<_> = std::fs::read_dir(path)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_file())
        .collect();
    names.sort();
    let files = names
        .iter()
        .map(|path| of_file(path))
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(json!({"folder": name(path), "files": files}))
}

fn of_file(path: &Path) -> anyhow::Result<Value> {
    let reading = || format!("{path:?} cannot be read for the manifest");
    let mut file = std::fs::File::open(path).with_context(reading)?;
    let (mut hash, mut length) = (XxHash3_128::new(), 0u64);
    let mut piece = vec![0; PIECE];
    loop {
        let count = file.read(&mut piece).with_context(reading)?;
        if count == 0 {
            break;
        }
        hash.write(piece.get(..count).unwrap_or(&[]));
        length += count as u64;
    }
    let hash = format!("{:032x}", hash.finish_128());
    Ok(json!({"file": name(path), "bytes": length, "xxh3_128": hash}))
}

fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}
