//! Giving a server new weights: through a folder that both see.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::capability::{Lack, Loader};
use super::http::Patience;
use super::server::Server;
use super::{Capabilities, RemoteError};
use crate::engine::EngineError;
use crate::experiment::ServerSettings;

/// The folder that weights travel through.
pub(super) struct Store {
    /// As it is called here.
    pub here: PathBuf,
    /// As the server calls it.
    pub there: String,
    /// Kept so that it is removed at the end.
    _temporary: Option<tempfile::TempDir>,
}

impl Store {
    /// The folder that the settings name, or a temporary one.
    ///
    /// # Errors
    /// [`RemoteError::Lacks`] if the server reads another folder; [`EngineError::Io`].
    pub fn open(
        settings: &ServerSettings,
        can: &Capabilities,
        url: &str,
    ) -> Result<Self, EngineError> {
        let reads_again = can.loader == Some(Loader::Reload);
        let lacks = |what: String, remedy: String| RemoteError::Lacks {
            url: url.to_owned(),
            product: can.product.clone(),
            lacks: vec![Lack { what, remedy }],
        };
        let io = |path: &Path| {
            let path = path.to_path_buf();
            move |source| EngineError::Io { path, source }
        };
        if settings.weights_folder.is_empty() {
            if reads_again {
                return Err(lacks(
                    "a folder to reload weights from".into(),
                    "put a copy of the policy into a folder, start vLLM with that folder as its model, and name it in engine.generator.weights_folder; the learner overwrites it".into(),
                )
                .into());
            }
            let folder = tempfile::Builder::new()
                .prefix("palimpsest-weights-")
                .tempdir()
                .map_err(io(&std::env::temp_dir()))?;
            let here = folder.path().to_path_buf();
            return Ok(Self {
                there: named(settings, &here),
                here,
                _temporary: Some(folder),
            });
        }
        let named_here = Path::new(&settings.weights_folder);
        std::fs::create_dir_all(named_here).map_err(io(named_here))?;
        let here = std::path::absolute(named_here).map_err(io(named_here))?;
        let there = named(settings, &here);
        let root = can.root.as_deref().unwrap_or_default();
        if reads_again && root.trim_end_matches('/') != there.trim_end_matches('/') {
            return Err(lacks(
                format!("weights from {there:?}: it was started with {root:?}, and reads that again"),
                "start vLLM with the folder of engine.generator.weights_folder as its model, or name in server_folder what that folder is called there".into(),
            )
            .into());
        }
        Ok(Self {
            here,
            there,
            _temporary: None,
        })
    }
}

fn named(settings: &ServerSettings, here: &Path) -> String {
    if settings.server_folder.is_empty() {
        here.display().to_string()
    } else {
        settings.server_folder.clone()
    }
}

impl Server {
    /// Makes the server load the weights in `folder` (its own name for it): generation pauses, what
    /// was cached under the old weights is dropped, and generation goes on, also after a failure.
    ///
    /// # Errors
    /// [`RemoteError::NotLoaded`] with what the server said, or what stopped the requests.
    pub async fn load_weights(&self, folder: &str, version: u64) -> Result<(), RemoteError> {
        let http = &self.line.http;
        let nothing = json!({});
        let pause_and_resume = match self.can.loader {
            Some(Loader::FromDisk { pauses: true }) => Some((
                ("/pause_generation", json!({"mode": "abort"})),
                "/continue_generation",
            )),
            Some(Loader::Reload) => Some((
                ("/pause?mode=abort&clear_cache=true", nothing.clone()),
                "/resume",
            )),
            _ => None,
        };
        if let Some(((pause, body), _)) = &pause_and_resume {
            http.tell(pause, body, Patience::Load).await?;
        }
        let loaded = match self.can.loader {
            Some(Loader::FromDisk { .. }) => self.update_from_disk(folder, version).await,
            Some(Loader::Reload) => {
                let body = json!({"method": "reload_weights"});
                http.tell("/collective_rpc", &body, Patience::Load).await
            }
            None => Err(RemoteError::NotLoaded {
                folder: folder.to_owned(),
                said: "it has no way to load weights".into(),
            }),
        };
        let resumed = match &pause_and_resume {
            Some((_, resume)) => http.tell(resume, &nothing, Patience::Load).await,
            None => Ok(()),
        };
        // If both failed, the first says why.
        loaded.map_err(|error| not_loaded(error, folder))?;
        resumed
    }

    async fn update_from_disk(&self, folder: &str, version: u64) -> Result<(), RemoteError> {
        let body = json!({
            "model_path": folder,
            "flush_cache": true,
            "weight_version": format!("palimpsest-{version}"),
        });
        let what = "new weights";
        let path = "/update_weights_from_disk";
        let said = self
            .line
            .http
            .post(path, &body, what, Patience::Load)
            .await?;
        if said.get("success").and_then(Value::as_bool) == Some(true) {
            return Ok(());
        }
        Err(RemoteError::NotLoaded {
            folder: folder.to_owned(),
            said: said.get("message").unwrap_or(&said).to_string(),
        })
    }
}

/// A refusal to load names the folder.
fn not_loaded(error: RemoteError, folder: &str) -> RemoteError {
    match error {
        RemoteError::Refused { said, .. } | RemoteError::Failing { said, .. } => {
            RemoteError::NotLoaded {
                folder: folder.to_owned(),
                said,
            }
        }
        other => other,
    }
}
