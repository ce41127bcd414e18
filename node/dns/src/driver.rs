//! Keeps the zone current and the server listening.

use crate::config::{DnsConfig, name_servers};
use crate::following::Following;
use crate::forward::Forwarder;
use crate::keeper::Keeper;
use crate::saved::{self, SavedError};
use crate::server::Server;
use crate::zone::Zone;
use futures::future::BoxFuture;
use machinery_runtime::{Runtime, TaskHandle};
use machinery_views::{Followed, ServiceViews};
use node_sys::nftables::Table;
use node_sys::nftables_guard::TableGuard;
use node_sys::{CommandSpec, Exec};
use std::error::Error as _;
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;

/// Our table of the kernel's rules.
const TABLE: &str = "knarr-dns";
const GUARDED: &[Table] = &[Table::ip(TABLE)];
/// Questions over UDP for each client address and second; the kernel drops those beyond, as a busy network does.
const QUESTIONS_PER_SECOND: u32 = 3_000;
/// Client addresses whose rate is limited at once (size of the kernel's set); clients beyond them are not limited.
const ASKERS_MAX: u32 = 4_096;
/// Pause between attempts to listen.
const RETRY: Duration = Duration::from_millis(500);
/// Interval of checks of the address: other programs remove it, or the link that has it.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Pause between two writes of the zone; what changed since the last is missing after a crash, until the API server delivers it.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);
/// For this long after a start a name that the saved zone lacks may be one that came after it was saved; later, with the
/// API server still away, what the zone lacks does not exist. Shorter than a question waits.
const SAVED_IS_DOUBTED: Duration = Duration::from_secs(3);
/// Interval of reads of the resolver configuration.
const RESOLV_CONF_INTERVAL: Duration = Duration::from_secs(10);
const MAX_RESOLV_CONF: u64 = 64 << 10;

/// Starts the server; it runs until its scope ends.
pub fn start(
    config: DnsConfig,
    views: ServiceViews,
    exec: Arc<dyn Exec>,
    runtime: Runtime,
) -> TaskHandle<()> {
    runtime.supervise_scope("dns", move |inside| {
        run(config.clone(), views.clone(), Arc::clone(&exec), inside)
    })
}

/// Listens at once. Other names are forwarded from the first question on; the cluster's come from the zone of the last
/// run until the API server has delivered the present ones; what is in neither waits a moment, and is a failure where there
/// is no last run. Ends with the watches of services: the zone would not be current any longer.
fn run(
    config: DnsConfig,
    views: ServiceViews,
    exec: Arc<dyn Exec>,
    runtime: Runtime,
) -> BoxFuture<'static, Result<(), String>> {
    Box::pin(async move {
        let zone = Arc::new(RwLock::new(Zone::new(&config.cluster_domain)));
        let forwarder = Forwarder::new(&config.upstream, runtime.clone());
        let server = Server::new(Arc::clone(&zone), Arc::clone(&forwarder), runtime.clone());
        // A task of its own, started before the sockets: the saved zone is loaded while the address is being
        // made.
        let keep = follow_zone(config.clone(), zone, views, runtime.clone());
        let followed = runtime.spawn("dns zone", keep);
        if let Some(path) = config.resolv_conf.clone() {
            let follow = follow_resolv_conf(path, config.cluster_dns, forwarder, runtime.clone());
            runtime.spawn("dns upstream", follow).detach();
        }
        let address = config.cluster_dns;
        if !address.is_loopback() {
            keep_address(&*exec, address).await;
            let keep = maintain_rules(exec, address, runtime.clone());
            runtime.spawn("dns address", keep).detach();
        }
        tokio::select! { biased;
            // Without its watches the server would serve an ever older zone and look healthy; the supervisor
            // restarts it.
            _ = followed => Err("the watches of services ended".to_owned()),
            () = listen(&server, &config, &runtime) => Ok(()),
        }
    })
}

/// Serves for as long as it is polled, and listens again when that fails.
async fn listen(server: &Arc<Server>, config: &DnsConfig, runtime: &Runtime) {
    loop {
        if let Err(error) = server.serve(config).await {
            tracing::warn!(%error, address = %config.address(), "listening failed, retrying");
        }
        runtime.sleep(RETRY).await;
    }
}

/// The zone of the last run, then that of the API server, saved when it has changed. Ends with the watches of services.
async fn follow_zone(config: DnsConfig, zone: Arc<RwLock<Zone>>, views: ServiceViews, runtime: Runtime) {
    let saved = match config.saved_zone.clone() {
        Some(path) => load_saved(path, &config.cluster_domain, &zone, &runtime).await,
        None => false,
    };
    views
        .during_a_run(|followed| keep_zone(config, zone, saved, followed, runtime))
        .await;
}

/// Keeps the zone as the API server has it; `saved` says that it has that of the last run already.
async fn keep_zone(
    config: DnsConfig,
    zone: Arc<RwLock<Zone>>,
    saved: bool,
    Followed { services, slices, .. }: Followed,
    runtime: Runtime,
) {
    let synced = || futures::future::join(services.synced(), slices.synced());
    // A deadline, as an API server that stays away would keep every mistyped name waiting. Without a saved zone
    // nothing is complete before it answers.
    if saved && runtime.timeout(SAVED_IS_DOUBTED, synced()).await.is_err() {
        zone.write()
            .expect("nothing panics while it is held")
            .set_complete();
    }
    synced().await;
    let keeper = Keeper::new(Arc::clone(&zone), runtime.clone());
    let following = Arc::new(Following::new(keeper, services, slices, runtime.clone()));
    // Subscribed before the first pass: changes during it are queued and not lost.
    let _subscriptions = following.follow();
    following.catch_up(&zone).await;
    zone.write()
        .expect("nothing panics while it is held")
        .set_complete();
    let save = async {
        match config.saved_zone {
            Some(path) => save_changes(path, zone, runtime).await,
            None => std::future::pending().await,
        }
    };
    futures::future::join(following.keep_current(), save).await;
}

/// Loads the saved zone and reports whether there was one.
async fn load_saved(path: PathBuf, domain: &str, zone: &RwLock<Zone>, runtime: &Runtime) -> bool {
    let domain = domain.to_owned();
    match runtime.blocking(move || saved::load(&path, &domain)).await {
        Ok(Ok(loaded)) => {
            tracing::info!(services = loaded.services().count(), "serving the saved zone");
            zone.write()
                .expect("nothing panics while it is held")
                // Not marked complete: services that were created after the save are unknown, and unknown names
                // are not denied.
                .adopt(loaded);
            return true;
        }
        Ok(Err(SavedError::File(error))) if error.kind() == io::ErrorKind::NotFound => {}
        Ok(Err(error)) => tracing::warn!(%error, "reading the saved zone failed"),
        Err(error) => tracing::warn!(%error, "reading the saved zone failed"),
    }
    false
}

/// Writes the zone whenever it has changed, and not more often than every [`SAVE_INTERVAL`].
async fn save_changes(path: PathBuf, zone: Arc<RwLock<Zone>>, runtime: Runtime) {
    let mut saved = None;
    loop {
        let serial = zone.read().expect("nothing panics while it is held").serial();
        if saved != Some(serial) {
            let (path, zone) = (path.clone(), Arc::clone(&zone));
            match runtime.blocking(move || saved::save(&zone, &path)).await {
                Ok(Ok(())) => saved = Some(serial),
                Ok(Err(error)) => {
                    tracing::warn!(%error, cause = error.source(), "saving the zone failed")
                }
                Err(error) => tracing::warn!(%error, "saving the zone failed"),
            }
        }
        runtime.sleep(SAVE_INTERVAL).await;
    }
}

/// Name servers change with the network the machine is in.
async fn follow_resolv_conf(path: PathBuf, own: Ipv4Addr, forwarder: Arc<Forwarder>, runtime: Runtime) {
    loop {
        let file = path.clone();
        let read = runtime.blocking(move || read_bounded(&file)).await;
        if let Ok(Ok(text)) = read {
            forwarder.set_upstream(&name_servers(&text, own));
        }
        runtime.sleep(RESOLV_CONF_INTERVAL).await;
    }
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(MAX_RESOLV_CONF)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// Makes the service's address one of this node: packets of pods end here without any translation.
async fn keep_address(exec: &dyn Exec, address: Ipv4Addr) {
    let spec = CommandSpec::new("ip").args(["address", "replace", &format!("{address}/32"), "dev", "lo"]);
    if let Err(error) = exec.run(spec).await.and_then(|output| output.success("ip")) {
        tracing::warn!(%error, "adding the cluster DNS address failed");
    }
}

/// Writes the rules, and the address, again when another took them away.
async fn maintain_rules(exec: Arc<dyn Exec>, address: Ipv4Addr, runtime: Runtime) {
    let mut guard = TableGuard::open(GUARDED, runtime.clone());
    let mut written = false;
    loop {
        keep_address(&*exec, address).await;
        if !written {
            let spec = CommandSpec::new("nft").args(["-f", "-"]).stdin(rules(address));
            let outcome = exec.run(spec).await.and_then(|output| output.success("nft"));
            if let Err(error) = &outcome {
                tracing::warn!(%error, "the rules of the cluster's DNS address were not written");
            }
            // An unreadable guard is taken for undisturbed: else the rules would be written every half second.
            written = outcome.is_ok() && guard.settle().unwrap_or(true);
        }
        let pause = if written { LOOK_AGAIN } else { RETRY };
        // A timeout is the quiet case: only a disturbed guard makes the rules be written again; the address is
        // set again in any case.
        let looked = runtime.timeout(pause, guard.disturbed()).await;
        written = written && looked.is_err();
    }
}

/// Rules that outlive us: where nothing listens on the address, nothing refuses either. A resolver takes a refusal for
/// an answer and fails; it takes silence for a lost packet and retries, and the next agent has started then.
///
/// Of one address no more questions reach the socket than [`QUESTIONS_PER_SECOND`], so that those of others find room in it. Connections
/// have their shares by themselves.
fn rules(address: Ipv4Addr) -> String {
    format!(
        "table ip {TABLE}
delete table ip {TABLE}
table ip {TABLE} {{
  chain refusals {{
    type filter hook output priority filter; policy accept;
    ip saddr {address} icmp type destination-unreachable icmp code port-unreachable drop
    ip saddr {address} tcp sport 53 tcp flags & rst == rst drop
  }}
  set askers {{
    type ipv4_addr; size {ASKERS_MAX}; flags dynamic, timeout; timeout 10s;
  }}
  chain questions {{
    type filter hook input priority filter; policy accept;
    ip daddr {address} udp dport 53 update @askers {{ ip saddr limit rate over {QUESTIONS_PER_SECOND}/second burst {QUESTIONS_PER_SECOND} packets }} drop
  }}
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_rules_bound_the_questions_of_each_address() {
        let rules = rules(Ipv4Addr::new(10, 96, 0, 10));
        let bound = "ip daddr 10.96.0.10 udp dport 53 update @askers { ip saddr limit rate over 3000/second burst 3000 packets } drop";
        assert!(rules.lines().any(|line| line.trim() == bound), "{rules}");
    }
}
