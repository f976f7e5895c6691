//! Search over HTTP in both directions, with everything that can go wrong there, and evaluations from
//! questions to replay.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "search/evaluate.rs"]
mod evaluate;
#[path = "search/faults.rs"]
mod faults;
#[path = "search/peers.rs"]
mod peers;
#[path = "search/players.rs"]
mod players;
#[path = "search/program.rs"]
mod program;
#[path = "search/server.rs"]
mod server;
#[path = "search/whole.rs"]
mod whole;
#[path = "search/world.rs"]
mod world;
