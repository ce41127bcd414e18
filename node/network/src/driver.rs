//! Watches nodes and writes the plan.
//!
//! The parts of a plan are written each for itself: a route that the kernel refuses is an error of that node alone.

use crate::config::NetworkConfig;
use crate::host;
use crate::model::NodeView;
use crate::plan::{CONFLIST, Plan, TABLE, plan, route_changes};
use crate::third_party::{self, ThirdParty};
use futures::future::BoxFuture;
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use machinery_client::{Client, Informer, Informers};
use machinery_runtime::{Runtime, TaskHandle};
use node_sys::nftables::Table;
use node_sys::nftables_guard::TableGuard;
use node_sys::routes::Routes;
use node_sys::{CommandSpec, Exec, ExecError};
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const GUARDED: &[Table] = &[Table::ip(TABLE), Table::ip6(TABLE)];
/// Removes our tables. Each is declared first: nft fails to delete a table that does not exist.
const NO_RULES: &str = "\
table ip knarr-network
delete table ip knarr-network
table ip6 knarr-network
delete table ip6 knarr-network
";
/// Waits after failures: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Interval of checks of routes: the kernel drops them with their links, and other programs may.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Interval of searches for other programs' configurations and plugins.
const LOOK_FOR_OTHERS: Duration = Duration::from_secs(1);

/// Error of writing the plan.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("writing {path}")]
    Write {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("reading network configurations of {path}, and linking plugins")]
    Read {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("changing rules")]
    Rules(#[from] ExecError),
    #[error("reading the routes to other nodes' pods")]
    Routes(#[source] io::Error),
    #[error("routing {pods} via {via}")]
    Route {
        pods: Ipv4Net,
        via: Ipv4Addr,
        #[source]
        source: io::Error,
    },
    #[error("removing the route to {pods}")]
    StaleRoute {
        pods: Ipv4Net,
        #[source]
        source: io::Error,
    },
    #[error("watching the rules")]
    Watch(#[source] io::Error),
    #[error("the rules were removed while they were written")]
    Removed,
    #[error("routes were not written")]
    Ended,
}

/// Starts the pod network; it runs until its scope ends and leaves everything in place, so that pods go on.
pub fn start(
    config: NetworkConfig,
    client: Client,
    exec: Arc<dyn Exec>,
    routes: Arc<dyn Routes>,
    runtime: Runtime,
) -> TaskHandle<()> {
    let client = client.with_user_agent("knarr-network");
    runtime.supervise_scope("pod network", move |inside| {
        let informers = Informers::new(client.clone(), inside.clone());
        let network = Network {
            config: config.clone(),
            exec: Arc::clone(&exec),
            routes: Arc::clone(&routes),
            runtime: inside,
            guard: TableGuard::unwatched(),
            written: Plan::default(),
            third_party: None,
            is_decided: false,
        };
        let running = run(network, informers);
        async move {
            running.await;
            Ok(())
        }
    })
}

fn run(mut network: Network, informers: Informers) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let nodes: Informer<NodeView> = informers.of::<Node, _>();
        // A plan from a part of the nodes would remove the routes to all others.
        nodes.synced().await;
        let mut dirty = nodes.dirty_keys();
        // Opened before the first write, so that a removal right after it is noticed.
        network.guard = TableGuard::open(GUARDED, network.runtime.clone());
        prepare_host(&network.runtime, network.config.host_settings.clone()).await;
        let mut logged: Vec<String> = Vec::new();
        let mut wait = RETRY.0;
        loop {
            let errors = network.write_all(&wanted(&network.config, &nodes)).await;
            log_once(&errors, &mut logged);
            let pause = if errors.is_empty() { LOOK_AGAIN } else { wait };
            wait = if errors.is_empty() {
                RETRY.0
            } else {
                (wait * 2).min(RETRY.1)
            };
            // Whichever comes first; the nodes are read again in every attempt.
            let news = network.runtime.timeout(pause, dirty.next_batch());
            tokio::select! { biased;
                // Removed rules come first: until they are back pods can send from addresses of others.
                () = network.guard.disturbed() => network.written.rules = None,
                () = others_change(&network.config, &network.third_party, &network.runtime) => {}
                _ = news => {}
            }
        }
    })
}

/// Ends when another program's configuration is not the known one any more. Plugins are linked meanwhile.
async fn others_change(config: &NetworkConfig, known: &Option<ThirdParty>, runtime: &Runtime) {
    loop {
        runtime.sleep(LOOK_FOR_OTHERS).await;
        let found = third_party(config, runtime).await;
        if found.is_ok_and(|found| found != *known) {
            return;
        }
    }
}

async fn third_party(config: &NetworkConfig, runtime: &Runtime) -> Result<Option<ThirdParty>, NetworkError> {
    let (config, failed) = (
        config.clone(),
        config.third_party_config_dir.display().to_string(),
    );
    let look = move || {
        config.plugins.link()?;
        third_party::find(&config.third_party_config_dir, config.is_enabled)
    };
    let found = runtime.blocking(look).await.map_err(|_| NetworkError::Ended)?;
    found.map_err(|source| NetworkError::Read { path: failed, source })
}

async fn prepare_host(runtime: &Runtime, note: PathBuf) {
    let prepare = move || host::prepare(Path::new("/proc/sys"), &note);
    if runtime.blocking(prepare).await.is_err() {
        tracing::warn!("settings of the host were not written");
    }
}

/// Logs each error once while it lasts.
fn log_once(errors: &[NetworkError], logged: &mut Vec<String>) {
    let now: Vec<String> = errors.iter().map(ToString::to_string).collect();
    for (error, text) in errors.iter().zip(&now).filter(|(_, text)| !logged.contains(text)) {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        tracing::warn!(error = %text, cause, "writing CNI configuration or routes failed, retrying");
    }
    *logged = now;
}

fn wanted(config: &NetworkConfig, nodes: &Informer<NodeView>) -> Plan {
    let all = nodes.list();
    plan(config, all.iter().map(|node| (node.name(), &node.projection)))
}

struct Network {
    config: NetworkConfig,
    exec: Arc<dyn Exec>,
    routes: Arc<dyn Routes>,
    runtime: Runtime,
    guard: TableGuard,
    written: Plan,
    /// The configuration of another program that counts.
    third_party: Option<ThirdParty>,
    /// Set once others' configurations have been looked at, so that ours is known to be wanted or not.
    is_decided: bool,
}

impl Network {
    /// Writes the plan, or steps aside for another program's network.
    async fn write_all(&mut self, wanted: &Plan) -> Vec<NetworkError> {
        let mut errors = Vec::new();
        match third_party(&self.config, &self.runtime).await {
            Ok(found) => self.decide(found),
            // Right after a start it is unknown whether another network is wanted; writing ours would start
            // pods in the wrong one.
            Err(error) if !self.is_decided => return vec![error],
            // What was decided before goes on.
            Err(error) => errors.push(error),
        }
        if self.third_party.is_none() && self.config.is_enabled {
            errors.extend(self.write(wanted).await);
            return errors;
        }
        errors.extend(self.step_aside().await.err());
        errors.extend(self.write_routes(&Plan::default()).await);
        errors
    }

    fn decide(&mut self, found: Option<ThirdParty>) {
        if found != self.third_party {
            let name = found.as_ref().map(|found| found.name.as_str());
            tracing::info!(
                configuration = name,
                "network of pods: another program's where one is named"
            );
        }
        self.third_party = found;
        self.is_decided = true;
    }

    /// Gives the runtime the other configuration before ours goes, and takes our rules away.
    async fn step_aside(&mut self) -> Result<(), NetworkError> {
        // The runtime's order of names decides in the end, so a moment with both is harmless, and one with
        // neither fails sandboxes.
        self.install().await?;
        self.written.conflist = None;
        if self.written.rules.as_deref() != Some(NO_RULES) {
            let spec = CommandSpec::new("nft").args(["-f", "-"]).stdin(NO_RULES);
            self.exec.run(spec).await?.success("nft")?;
            // The removal itself is an event of the kernel; settling takes it off the guard, or the next round
            // would write again.
            self.guard.settle().map_err(NetworkError::Watch)?;
            self.written.rules = Some(NO_RULES.to_owned());
        }
        Ok(())
    }

    async fn install(&mut self) -> Result<(), NetworkError> {
        let (folder, found) = (self.config.cni_config_dir.clone(), self.third_party.clone());
        let path = folder.display().to_string();
        let has_own = self.config.is_enabled;
        let work = self.runtime.blocking(move || {
            third_party::install(&folder, found.as_ref())?;
            match (found, has_own) {
                (None, false) => third_party::remove(&folder.join(CONFLIST)),
                _ => Ok(()),
            }
        });
        let done = work.await.map_err(|_| NetworkError::Ended)?;
        done.map_err(|source| NetworkError::Write { path, source })
    }

    /// Rules before the conflist: once that is there, pods start. Routes last: they are other nodes' business.
    async fn write(&mut self, wanted: &Plan) -> Vec<NetworkError> {
        let mut errors = Vec::new();
        let own = async {
            self.write_rules(wanted).await?;
            self.write_conflist(wanted).await
        };
        errors.extend(own.await.err());
        errors.extend(self.write_routes(wanted).await);
        errors
    }

    async fn write_rules(&mut self, wanted: &Plan) -> Result<(), NetworkError> {
        let Some(rules) = &wanted.rules else { return Ok(()) };
        if self.written.rules.as_ref() != Some(rules) {
            let spec = CommandSpec::new("nft").args(["-f", "-"]).stdin(rules.as_str());
            self.exec.run(spec).await?.success("nft")?;
            // Another program removed the table between nft's end and here: an error, so that this round is
            // repeated and not noted as written.
            if !self.guard.settle().map_err(NetworkError::Watch)? {
                return Err(NetworkError::Removed);
            }
            self.written.rules = Some(rules.clone());
        }
        Ok(())
    }

    async fn write_conflist(&mut self, wanted: &Plan) -> Result<(), NetworkError> {
        let Some(conflist) = &wanted.conflist else {
            return Ok(());
        };
        if self.written.conflist.as_ref() == Some(conflist) {
            return Ok(());
        }
        let (folder, text) = (self.config.cni_config_dir.clone(), conflist.clone());
        let path = folder.join(CONFLIST);
        let file = path.clone();
        let work = self.runtime.blocking(move || {
            std::fs::create_dir_all(&folder)?;
            node_sys::fs::write_atomically(&file, text.as_bytes(), 0o644)?;
            // After ours is there: the other way round the runtime would see a moment without any network.
            third_party::install(&folder, None)
        });
        let path = path.display().to_string();
        let written = work.await.map_err(|_| NetworkError::Ended)?;
        written.map_err(|source| NetworkError::Write {
            path: path.clone(),
            source,
        })?;
        // Noted only once written; a failure leaves the earlier value and is retried with backoff.
        self.written.conflist = Some(conflist.clone());
        tracing::info!(%path, "CNI configuration written");
        Ok(())
    }

    /// Writes the routes. They are compared with the kernel's, so that routes to nodes that were removed while the agent was away go too.
    async fn write_routes(&mut self, wanted: &Plan) -> Vec<NetworkError> {
        let (routes, wanted) = (Arc::clone(&self.routes), wanted.routes.clone());
        let work = self.runtime.blocking(move || change_routes(&*routes, &wanted));
        work.await.unwrap_or_else(|_| vec![NetworkError::Ended])
    }
}

/// Every route is tried; what the kernel says to one is nothing to the others.
fn change_routes(routes: &dyn Routes, wanted: &BTreeMap<Ipv4Net, Ipv4Addr>) -> Vec<NetworkError> {
    let present = match routes.list() {
        Ok(present) => present,
        Err(error) => return vec![NetworkError::Routes(error)],
    };
    let present = present
        .into_iter()
        .filter_map(|((address, length), via)| Some((Ipv4Net::new(address, length).ok()?, via)));
    let (gone, set) = route_changes(&present.collect(), wanted);
    let range = |pods: &Ipv4Net| (pods.network(), pods.prefix_len());
    let removals = gone.into_iter().filter_map(|pods| {
        let source = routes.remove(range(&pods)).err()?;
        Some(NetworkError::StaleRoute { pods, source })
    });
    let mut errors: Vec<NetworkError> = removals.collect();
    errors.extend(set.into_iter().filter_map(|(pods, via)| {
        let source = routes.set(range(&pods), via).err()?;
        Some(NetworkError::Route { pods, via, source })
    }));
    errors
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
