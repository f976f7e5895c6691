//! Models of the Hugging Face Hub as folders: from the local cache where they are there already, else
//! fetched into it, so that other programs find them too.
//!
//! Reads HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_HUB_OFFLINE and the token of `huggingface-cli login`.

use std::path::{Path, PathBuf};

use hf_hub::api::sync::{ApiBuilder, ApiError};
use hf_hub::{Cache, Repo, RepoType};
use serde::Deserialize;

/// Files of a model that are fetched, beside its safetensors.
const FILES: [&str; 11] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    INDEX,
];
const WEIGHTS: &str = "model.safetensors";
/// What a model that a server runs is needed for here.
const WORDS: [&str; 2] = ["config.json", "tokenizer.json"];
const INDEX: &str = "model.safetensors.index.json";

/// Why a model of the Hub is not there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The name is none.
    #[error(
        "Hub({0:?}) is no name of a model: it must be \"organisation/name\", or with a revision \"organisation/name@revision\""
    )]
    BadName(String),
    /// It could not be fetched.
    #[error(
        "Hub({name:?}) is not in the cache {cache:?} and cannot be fetched ({problem}); where the network does not allow it, copy the model's folder here and use policy: Folder(\"path\")"
    )]
    Unreachable {
        /// The model.
        name: String,
        /// Where it was looked for.
        cache: PathBuf,
        /// What went wrong.
        problem: String,
    },
}

/// Where models come from.
#[derive(Clone, Debug)]
pub struct Hub {
    cache: PathBuf,
    /// None: the public one.
    endpoint: Option<String>,
    offline: bool,
}

#[derive(Deserialize)]
struct Index {
    weight_map: std::collections::BTreeMap<String, String>,
}

impl Hub {
    /// As the environment says.
    #[must_use]
    pub fn from_env() -> Self {
        let said = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let offline = said("HF_HUB_OFFLINE").is_some_and(|value| value != "0");
        Self {
            cache: said("HF_HUB_CACHE")
                .map_or_else(|| Cache::from_env().path().clone(), PathBuf::from),
            endpoint: said("HF_ENDPOINT"),
            offline,
        }
    }

    /// A cache folder, and a server to fetch from if it lacks a model.
    #[must_use]
    pub fn at(cache: &Path, endpoint: Option<&str>) -> Self {
        Self {
            cache: cache.to_owned(),
            endpoint: endpoint.map(str::to_owned),
            offline: endpoint.is_none(),
        }
    }

    /// The folder of the model `name`, with its weights and its tokenizer.
    ///
    /// # Errors
    /// [`HubError`] with the remedy.
    pub fn folder(&self, name: &str) -> Result<PathBuf, HubError> {
        self.folder_with(name, true)
    }

    /// The folder of the model `name`, with its tokenizer, but perhaps without weights: for runs in
    /// which a server has them.
    ///
    /// # Errors
    /// [`HubError`] with the remedy.
    pub fn folder_of_words(&self, name: &str) -> Result<PathBuf, HubError> {
        self.folder_with(name, false)
    }

    fn folder_with(&self, name: &str, weights: bool) -> Result<PathBuf, HubError> {
        let repo = repo(name)?;
        if let Some(folder) = self.cached(&repo, weights) {
            return Ok(folder);
        }
        let unreachable = |problem: String| HubError::Unreachable {
            name: name.to_owned(),
            cache: self.cache.clone(),
            problem,
        };
        if self.offline {
            return Err(unreachable("HF_HUB_OFFLINE is set".to_owned()));
        }
        tracing::info!("fetching {name} into {:?}", self.cache);
        self.fetch(repo.clone(), weights)
            .map_err(|error| unreachable(error.to_string()))?;
        let needed = match weights {
            true => "config.json with safetensors",
            false => "config.json with tokenizer.json",
        };
        self.cached(&repo, weights)
            .ok_or_else(|| unreachable(format!("it has no {needed}")))
    }

    /// The folder in the cache, if it is whole.
    fn cached(&self, repo: &Repo, weights: bool) -> Option<PathBuf> {
        let cached = Cache::new(self.cache.clone()).repo(repo.clone());
        let folder = cached.get("config.json")?.parent()?.to_owned();
        if !weights {
            let mut words = WORDS.iter();
            return words
                .all(|file| folder.join(file).exists())
                .then_some(folder);
        }
        if folder.join(WEIGHTS).exists() {
            return Some(folder);
        }
        let index: Index = serde_json::from_slice(&std::fs::read(folder.join(INDEX)).ok()?).ok()?;
        let mut shards = index.weight_map.values();
        shards
            .all(|shard| folder.join(shard).exists())
            .then_some(folder)
    }

    fn fetch(&self, repo: Repo, with_weights: bool) -> Result<(), ApiError> {
        let mut builder = ApiBuilder::from_env().with_cache_dir(self.cache.clone());
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.clone());
        }
        let repo = builder.build()?.repo(repo);
        let listed: Vec<String> = repo
            .info()?
            .siblings
            .into_iter()
            .map(|file| file.rfilename)
            .collect();
        let one_file = listed.iter().any(|name| name == WEIGHTS);
        for name in listed {
            // Shards and their index only where there is no single file.
            let weights = if one_file {
                name == WEIGHTS
            } else {
                name.ends_with(".safetensors") && !name.contains('/')
            };
            if weights && with_weights
                || FILES.contains(&name.as_str()) && !(one_file && name == INDEX)
            {
                repo.get(&name)?;
            }
        }
        Ok(())
    }
}

/// `organisation/name`, with `@revision` or without.
fn repo(name: &str) -> Result<Repo, HubError> {
    let bad = || HubError::BadName(name.to_owned());
    let (id, revision) = name.split_once('@').unwrap_or((name, "main"));
    let plain = |part: &str| {
        let letters = part
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        !part.is_empty() && letters && !part.starts_with('.')
    };
    let (organisation, model) = id.split_once('/').ok_or_else(bad)?;
    if !plain(organisation) || !plain(model) || revision.is_empty() || revision.contains("..") {
        return Err(bad());
    }
    Ok(Repo::with_revision(
        id.to_owned(),
        RepoType::Model,
        revision.to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache that holds one model, as huggingface_hub lays it out.
    fn cache(files: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let cache = tempfile::tempdir().unwrap();
        let model = cache.path().join("models--some--model");
        let folder = model.join("snapshots/0123abc");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(model.join("refs")).unwrap();
        std::fs::write(model.join("refs/main"), "0123abc").unwrap();
        for file in files {
            let text =
                r#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#;
            std::fs::write(folder.join(file), text).unwrap();
        }
        (cache, folder)
    }

    #[test]
    fn a_whole_model_in_the_cache_is_found_without_a_network() {
        let shards = [INDEX, "model-1.safetensors", "model-2.safetensors"];
        for weights in [&[WEIGHTS][..], &shards] {
            let (cache, folder) = cache(&[&["config.json"], weights].concat());
            let hub = Hub::at(cache.path(), None);
            assert_eq!(hub.folder("some/model").unwrap(), folder);
            assert!(hub.folder("some/model@v2").is_err());
        }
        let (cache, _) = cache(&["config.json", INDEX, "model-1.safetensors"]);
        let missing = Hub::at(cache.path(), None)
            .folder("some/model")
            .unwrap_err();
        assert!(missing.to_string().contains("Folder("), "{missing}");
    }

    #[test]
    fn without_a_network_the_error_names_the_model_and_the_other_way() {
        let cache = tempfile::tempdir().unwrap();
        // A port that was just free: nobody answers there.
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let nobody = format!("http://127.0.0.1:{port}");
        let error = Hub::at(cache.path(), Some(&nobody))
            .folder("some/model")
            .unwrap_err();
        let text = error.to_string();
        for needle in [
            "Hub(\"some/model\")",
            "cannot be fetched",
            "policy: Folder(\"path\")",
        ] {
            assert!(text.contains(needle), "{text}");
        }
    }

    #[test]
    fn names_are_checked_before_they_become_paths() {
        let hub = Hub::at(Path::new("nowhere"), None);
        for name in [
            "", "model", "a/b/c", "../x", "a/..", "a/b@", "a/b@../c", "a b/c",
        ] {
            let error = hub.folder(name).unwrap_err();
            assert!(matches!(error, HubError::BadName(_)), "{name}: {error}");
        }
    }

    /// Answers as the Hub does, with one model, until the test ends.
    fn server(files: &'static [(&'static str, &'static str)]) -> String {
        use std::io::{BufRead as _, BufReader, Write as _};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let asked = lines.next().unwrap().unwrap();
                let path = asked.split(' ').nth(1).unwrap().to_owned();
                let head: Vec<String> = lines
                    .map(Result::unwrap)
                    .take_while(|line| !line.is_empty())
                    .collect();
                let first_byte = head.iter().any(|line| line.ends_with("bytes=0-0"));
                let name = path.rsplit('/').next().unwrap();
                let found = files.iter().find(|(file, _)| *file == name);
                let (status, body) = match found {
                    _ if path.starts_with("/api/models/some/model") => {
                        let names = files
                            .iter()
                            .map(|(file, _)| format!("{{\"rfilename\":\"{file}\"}}"));
                        let names: Vec<String> = names.collect();
                        (
                            "200 OK",
                            format!("{{\"sha\":\"0123abc\",\"siblings\":[{}]}}", names.join(",")),
                        )
                    }
                    Some((_, text)) => ("206 Partial Content", (*text).to_owned()),
                    None => ("404 Not Found", String::new()),
                };
                let (range, sent) = if first_byte {
                    (format!("bytes 0-0/{}", body.len()), body[..1].to_owned())
                } else {
                    (
                        format!("bytes 0-{}/{}", body.len().saturating_sub(1), body.len()),
                        body,
                    )
                };
                write!(
                    stream,
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nContent-Range: {range}\r\nETag: \"{name}\"\r\nX-Repo-Commit: 0123abc\r\nConnection: close\r\n\r\n{sent}",
                    sent.len()
                )
                .unwrap();
            }
        });
        address
    }

    #[test]
    fn where_a_server_has_the_weights_only_config_and_tokenizer_are_fetched() {
        let server = server(&[
            ("config.json", "{}"),
            ("model.safetensors", "weights"),
            ("tokenizer.json", "words"),
        ]);
        let cache = tempfile::tempdir().unwrap();
        let hub = Hub::at(cache.path(), Some(&server));
        let folder = hub.folder_of_words("some/model").unwrap();
        assert!(folder.join("tokenizer.json").exists());
        assert!(!folder.join("model.safetensors").exists());
        let offline = Hub::at(cache.path(), None);
        assert_eq!(offline.folder_of_words("some/model").unwrap(), folder);
        assert!(offline.folder("some/model").is_err(), "half a model");
        // Who needs the weights gets them all the same.
        assert_eq!(hub.folder("some/model").unwrap(), folder);
        assert!(folder.join("model.safetensors").exists());
    }

    #[test]
    fn a_model_that_is_not_there_is_fetched_whole_and_then_found_offline() {
        let server = server(&[
            ("config.json", "{}"),
            ("README.md", "not wanted"),
            ("model.safetensors", "weights"),
            ("tokenizer.json", "words"),
        ]);
        let cache = tempfile::tempdir().unwrap();
        let folder = Hub::at(cache.path(), Some(&server))
            .folder("some/model")
            .unwrap();
        let read = |name| std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(
            (read("model.safetensors"), read("tokenizer.json")),
            ("weights".into(), "words".into())
        );
        assert!(!folder.join("README.md").exists());
        assert_eq!(
            Hub::at(cache.path(), None).folder("some/model").unwrap(),
            folder
        );
    }
}
