//! `palimpsest serve`: a corpus over HTTP.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use palimpsest::retrieval::{ServeLimits, serve as answer};
use palimpsest::tools::{start_runtime, wait_for_signal};
use tokio::net::TcpListener;

use super::library::{Bar, open_library};
use crate::arguments::Serve;

/// Addresses far away, of documentation: nobody is there.
const FAR_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const FAR_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

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
        let told = match &arguments.save_dir {
            Some(folder) => Some(tell_clients(folder, address)?),
            None => None,
        };
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
        let ended = answer(listener, library, limits, stop).await;
        if let Some(file) = told {
            // Nobody should look for a server that is gone.
            std::fs::remove_file(&file).with_context(|| format!("{file:?} cannot be removed"))?;
        }
        ended?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Writes the file by which ASearcher's clients find their server, under an address that others can
/// reach.
fn tell_clients(folder: &Path, address: SocketAddr) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let address = SocketAddr::new(reachable(address.ip()), address.port());
    let name = format!("Host{}_IP{}.txt", address.ip(), address.port());
    let file = folder.join(name);
    std::fs::write(&file, format!("{address}\n"))
        .with_context(|| format!("{file:?} cannot be written"))?;
    Ok(file)
}

/// The address under which this machine is known, where a server listens at all of them: the one that
/// it would send from. No packet is sent.
fn reachable(listening: IpAddr) -> IpAddr {
    let (any, far, loopback): (IpAddr, IpAddr, IpAddr) = match listening {
        address if !address.is_unspecified() => return address,
        IpAddr::V4(any) => (any.into(), FAR_V4.into(), Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(any) => (any.into(), FAR_V6.into(), Ipv6Addr::LOCALHOST.into()),
    };
    UdpSocket::bind((any, 0))
        .and_then(|socket| {
            socket.connect((far, 9))?;
            socket.local_addr()
        })
        .map_or(loopback, |from| from.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_an_address_that_they_can_ask() {
        let folder = tempfile::tempdir().unwrap();
        for (listening, known) in [
            ("127.0.0.1:80", true),
            ("0.0.0.0:80", false),
            ("[::]:80", false),
        ] {
            let file = tell_clients(folder.path(), listening.parse().unwrap()).unwrap();
            let told: SocketAddr = std::fs::read_to_string(file)
                .unwrap()
                .trim()
                .parse()
                .unwrap();
            assert!(!told.ip().is_unspecified(), "{listening}: {told}");
            assert_eq!(told.to_string() == listening, known, "{told}");
        }
    }
}
