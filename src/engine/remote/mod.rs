//! Engines that run as a server of their own: SGLang's `/generate`, and `/v1/completions` as vLLM,
//! SGLang and llama.cpp have it.
//!
//! Reads the same requests as every engine; generating and, where it can, scoring happen on the
//! server, learning stays with a local engine. Token ids go in and come out, and are kept exactly as
//! sampled. After an update the learner's weights are saved to a folder and the server is told to
//! load it, before it is asked for anything else. `docs/engines.md` has the servers' side.
//!
//! `http.rs` sends and tries again; `sglang.rs` and `openai.rs` know the fields; `handshake.rs` finds
//! out at the start what the server can do, and `capability.rs` says what that is not enough for;
//! `generate.rs`, `score.rs` and `load.rs` are the three things asked of it; `agree.rs` compares
//! server and learner; `engine.rs` puts them behind the trait.

mod agree;
mod capability;
mod engine;
mod error;
mod generate;
mod handshake;
mod http;
mod load;
mod measuring;
mod openai;
mod reply;
mod score;
mod server;
mod sglang;
#[cfg(test)]
mod tests;

pub use capability::{Capabilities, Lack, Loader, Needs, ScoreWay, Stops};
pub use engine::RemoteEngine;
pub use error::RemoteError;
pub use measuring::NoLearner;
