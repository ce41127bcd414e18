//! `knarr server`: the control plane in the foreground, until a signal ends it.
//!
//! [`arguments`] has the flags, [`api`] those of what the API serves, [`controllers`] those of the controllers, [`election`] those of their election among
//! several servers, [`encryption`] those of encryption at rest, [`bounds`] those of what is stored, [`serving`] those of serving certificates, [`scheduler`] the file of the scheduler, [`flags`] all of them as `/flagz` shows them, [`authorities`] what several servers share, [`paths`] what lies where in the data directory,
//! [`identities`] writes the kubeconfigs of administrator and node, [`node_config`] what nodes that join have to know, [`agent_process`] keeps the node agent running, in a
//! session of its own.

mod agent_process;
mod api;
mod arguments;
mod audit;
mod authentication;
mod authorities;
mod authorization;
mod bounds;
mod controllers;
mod election;
mod encryption;
mod flags;
pub(crate) mod identities;
mod node_config;
pub(crate) mod paths;
mod scheduler;
mod serving;

pub(crate) use arguments::ServerArguments;
pub(crate) use encryption::load;
pub(crate) use flags::{of as shown_flags, shown as flags_of};

use crate::{log_rotation, logging, open_files};
use anyhow::{Context, bail};
use apiserver_storage::{LogOptions, LogStorage, Storage, StorageError};
use cluster::Cluster;
use identities::Identities;
use machinery_runtime::{Background, Runtime};
use node_sys::process::ProcessIdentity;
use paths::Paths;
use std::io::ErrorKind;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) const DEFAULT_DATA_DIR: &str = "/var/lib/knarr";
/// Requests are short; more threads would only cost memory.
const MAX_WORKER_THREADS: usize = 8;

pub(crate) fn run(arguments: ServerArguments) -> anyhow::Result<()> {
    if !arguments.disable_agent && !node_sys::machine::is_root() {
        bail!("the node agent needs root; --disable-agent runs the control plane alone");
    }
    if !arguments.disable_agent
        && let Some(problem) = node_kubelet::cgroup_driver::refusal(arguments.node.own.cgroup_driver)
    {
        bail!(problem);
    }
    node_sys::process::spare_from_oom(std::process::id());
    let threads = worker_threads();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()?;
    let done = runtime.block_on(serve(arguments));
    // Whatever is still blocking (a resolver, say) does not hold up the exit.
    runtime.shutdown_background();
    done
}

fn worker_threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    processors.min(MAX_WORKER_THREADS)
}

async fn serve(arguments: ServerArguments) -> anyhow::Result<()> {
    arguments.config.log();
    let runtime = Runtime::real();
    let paths = Paths::new(&arguments.data_dir);
    let mut config = arguments.server_config(&paths)?;
    let paths = paths.with_agent_at(arguments.agent_data_dir.as_deref())?;
    (config.max_connections, config.max_proxied_connections) =
        open_files::connections_and_proxied(config.max_connections, config.max_proxied_connections);
    let root_ca = arguments.serving.root_ca()?;
    let scheduler = arguments.scheduler.configuration()?;
    let storage = open_storage(&arguments, &paths, &runtime).await?;
    record_process(&paths);
    log_rotation::keep(paths.process().with_file_name("server.log"), &runtime);
    let shared = storage.shared();
    if let Some(shared) = shared {
        authorities::share(shared, &arguments, &paths, &runtime).await?;
    }
    arguments.encryption.follow_file(&storage, &runtime);
    encryption::EncryptionArguments::follow_keys(&storage, &runtime);
    let election = arguments.election.candidate(shared.is_some(), &runtime)?;
    let mut builder = Cluster::builder()
        .runtime(runtime.clone())
        .storage(storage)
        .server(|settings| *settings = config)
        .components_on(Background::start("components", worker_threads())?)
        .leader_election(election)
        .controllers(arguments.controllers.selection())
        .controller_config(|settings| {
            arguments.controllers.apply(settings);
            settings.root_ca = root_ca;
        });
    if !arguments.disable_scheduler {
        builder = builder.scheduler_with(scheduler);
    }
    let cluster = builder
        .start()
        .await
        .map_err(|error| startup_failure(error.into()))?;
    let server = cluster.server();
    let address = server.local_address().context("the server has no address")?;
    let url = identities::local_url(address);
    let identities = Identities {
        server,
        url: &url,
        arguments: &arguments,
        paths: &paths,
        runtime: &runtime,
    };
    let due = identities.write_all_at_start()?;
    node_config::publish(&cluster, &arguments, address).await;
    if server.advertised_address().is_loopback() {
        tracing::warn!(
            "the advertised address is a loopback address, which no pod can reach: the service kubernetes has no endpoints; \
             give --advertise-address"
        );
    }
    tracing::info!(%url, data_dir = %arguments.data_dir.display(), "ready");
    if !arguments.disable_agent {
        agent_process::supervise_agent(&arguments, &paths, &runtime).await?;
    }
    tokio::select! { biased;
        signal = wait_for_signal() => signal?,
        () = identities.renew_kubeconfigs(due) => {}
    }
    let delay = arguments.api.shutdown_delay_duration;
    if !delay.is_zero() {
        tracing::info!(
            ?delay,
            "not ready any more, and serving on until the delay has passed"
        );
        server.announce_shutdown();
        tokio::select! { biased;
            signal = wait_for_signal() => signal?,
            () = runtime.sleep(delay) => {}
        }
    }
    tracing::info!("shutting down");
    cluster.shutdown().await;
    Ok(())
}

/// Writes down which process serves this directory, for `knarr up` and `knarr uninstall`.
fn record_process(paths: &Paths) {
    let path = paths.process();
    let written = ProcessIdentity::of(std::process::id())
        .and_then(|own| node_sys::fs::write_atomically(&path, own.to_text().as_bytes(), 0o640));
    if let Err(error) = written {
        // A server starts on a full disk, too.
        tracing::warn!(%error, path = %path.display(), "the server's process was not recorded");
    }
}

async fn open_storage(
    arguments: &ServerArguments,
    paths: &Paths,
    runtime: &Runtime,
) -> anyhow::Result<Arc<dyn Storage>> {
    let encryption = arguments.encryption.open(runtime).await?;
    if let Some(storage) = arguments.etcd(paths, runtime, encryption.clone()).await? {
        return Ok(storage);
    }
    let mut options = LogOptions::new(paths.storage());
    options.encryption = encryption;
    options.scrub_interval = arguments.storage_scrub_interval;
    options.quota = arguments.quota();
    let folder = arguments.data_dir.display().to_string();
    options.on_fatal = Arc::new(move |error| {
        logging::print_error(&disk_failure(&folder, error));
        std::process::exit(1)
    });
    let opened = LogStorage::open(runtime, options).await;
    let (storage, report) =
        opened.with_context(|| format!("opening the data directory {}", arguments.data_dir.display()))?;
    tracing::info!(?report, "storage is open");
    Ok(Arc::new(storage))
}

/// Adds the remedy to an error at the start, if its user has one.
fn startup_failure(error: anyhow::Error) -> anyhow::Error {
    let system = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<std::io::Error>());
    let advice = match system.map(std::io::Error::kind) {
        Some(ErrorKind::AddrInUse) => "--secure-port chooses another port",
        Some(ErrorKind::AddrNotAvailable) => "--bind-address must be an address of this machine",
        _ => return error,
    };
    error.context(advice)
}

/// Describes a failure of the disk, with its remedy.
fn disk_failure(folder: &str, error: &StorageError) -> anyhow::Error {
    let full = matches!(error, StorageError::Io { source, .. }
        if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded));
    let advice = if full {
        "free space on its disk, then start the server again"
    } else {
        "check its disk, then start the server again"
    };
    anyhow::Error::new(error.clone()).context(format!(
        "--data-dir {folder} cannot be written; what was acknowledged is kept. {advice}"
    ))
}

async fn wait_for_signal() -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! { biased;
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
