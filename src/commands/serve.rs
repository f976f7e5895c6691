//! `palimpsest serve`: a corpus over HTTP.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use palimpsest::retrieval::{ServeLimits, serve as answer};
use palimpsest::tools::{start_runtime, wait_for_signal};
use tokio::net::TcpListener;

use super::library::{Bar, open_library};
use crate::arguments::Serve;

/// Runs the command until Ctrl-C or SIGTERM.
pub fn serve(arguments: &Serve) -> anyhow::Result<ExitCode> {
    let mut bar = Bar::default();
    let library = open_library(&arguments.finding, &mut bar)?;
    bar.end();
    let workers = match arguments.workers {
        Some(workers) => workers,
        None => std::thread::available_parallelism()?,
    };
    let limits = ServeLimits {
        topk: arguments.topk.get(),
        workers: workers.get(),
        queue: arguments.queue.get(),
        body_bytes: arguments.body_kib.get().saturating_mul(1024),
        seconds: arguments.seconds.get() as f32,
        ..ServeLimits::default()
    };
    if !arguments.host.is_loopback() {
        tracing::warn!(
            "{} is no loopback address: every machine that reaches it can read the corpus",
            arguments.host
        );
    }
    let runtime = start_runtime("serve", workers.get())?;
    runtime.block_on(async {
        let listener = TcpListener::bind((arguments.host, arguments.port))
            .await
            .with_context(|| {
                format!(
                    "{}:{} cannot be listened at; name another --host or --port",
                    arguments.host, arguments.port
                )
            })?;
        let address = listener.local_addr()?;
        writeln!(std::io::stdout(), "http://{address}")?;
        if let Some(folder) = &arguments.save_dir {
            std::fs::create_dir_all(folder)?;
            let name = format!("Host{}_IP{}.txt", address.ip(), address.port());
            std::fs::write(folder.join(name), format!("{address}\n"))?;
        }
        tracing::info!(
            "{} passages at http://{address}; stop with Ctrl-C",
            library.corpus.len()
        );
        let stop = async {
            if let Err(error) = wait_for_signal().await {
                tracing::warn!("signals cannot be heard ({error}); stop with SIGKILL");
                std::future::pending::<()>().await;
            }
        };
        answer(listener, library, limits, stop).await?;
        Ok(ExitCode::SUCCESS)
    })
}
