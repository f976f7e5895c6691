//! Files of an experiment, by paths that hold from any folder.

use anyhow::Context as _;
use palimpsest::experiment::{Experiment, GeneratorSetting, PolicySettings, Retrieval, find_path};
use palimpsest::hub::Hub;

/// Makes the files that the experiment names absolute, so that the run can be resumed from any
/// folder. A model of the Hub becomes its folder in the cache, which names its revision.
pub fn settle_paths(experiment: &mut Experiment) -> anyhow::Result<()> {
    let settle = |name: &mut String, setting: &str| -> anyhow::Result<()> {
        let found = find_path(name).with_context(|| {
            format!("{setting} {name:?} was not found in the current folder, nor in a folder of the program; name a path that exists")
        })?;
        *name = std::path::absolute(found)?.display().to_string();
        Ok(())
    };
    if let PolicySettings::Hub(name) = &experiment.policy {
        let hub = Hub::from_env();
        // A server that is only measured has its weights.
        let on_server = experiment.engine.generator.server().is_some() && !experiment.trains();
        let folder = if on_server {
            hub.folder_of_words(name)?
        } else {
            hub.folder(name)?
        };
        experiment.policy = PolicySettings::Folder(folder.display().to_string());
    }
    if let PolicySettings::Folder(folder) = &mut experiment.policy {
        settle(folder, "policy")?;
    }
    if let GeneratorSetting::Sglang(server) | GeneratorSetting::OpenAi(server) =
        &mut experiment.engine.generator
        && !server.weights_folder.is_empty()
    {
        let folder = std::path::absolute(&server.weights_folder)?;
        server.weights_folder = folder.display().to_string();
    }
    let task = &mut experiment.task;
    let encoder = match &mut task.retrieval {
        Retrieval::Dense(folder) | Retrieval::Hybrid(folder) => Some(folder),
        Retrieval::Lexical | Retrieval::Served(_) => None,
    };
    let files = [
        (&mut task.facts, "task.facts"),
        (&mut task.corpus, "task.corpus"),
        (&mut task.questions, "task.questions"),
        (&mut task.test_questions, "task.test_questions"),
    ];
    for (file, setting) in files
        .into_iter()
        .chain(encoder.map(|folder| (folder, "task.retrieval")))
    {
        if !file.is_empty() {
            settle(file, setting)?;
        }
    }
    Ok(())
}
