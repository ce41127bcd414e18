//! Keeps the zone current and the server listening.

use crate::config::DnsConfig;
use crate::model::{BY_SERVICE, Service, Slice};
use crate::server::Server;
use crate::zone::Zone;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use machinery_client::{Client, Informer, Informers, Subscription};
use machinery_meta::ObjectKey;
use machinery_runtime::{Runtime, TaskHandle};
use node_sys::{CommandSpec, Exec};
use std::net::Ipv4Addr;
use std::sync::{Arc, RwLock};
use std::time::Duration;

/// Our table of the kernel's rules.
const TABLE: &str = "knarr-dns";
/// Between attempts to listen.
const RETRY: Duration = Duration::from_secs(2);

/// Starts the server; it runs until its scope ends.
pub fn start(config: DnsConfig, client: Client, exec: Arc<dyn Exec>, runtime: Runtime) -> TaskHandle<()> {
    let inside = runtime.clone();
    let informers = Informers::new(client.with_user_agent("knarr-dns"), runtime.clone());
    runtime.spawn("dns", run(config, informers, exec, inside))
}

/// Listens once the names are known, so that no name is denied only because it was not read yet.
fn run(
    config: DnsConfig,
    informers: Informers,
    exec: Arc<dyn Exec>,
    runtime: Runtime,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let zone = Arc::new(RwLock::new(Zone::new(&config.cluster_domain)));
        let services: Informer<Service> = informers.of::<core::Service, _>();
        let slices: Informer<Slice> = informers.of::<EndpointSlice, _>();
        services.synced().await;
        slices.synced().await;
        let _following = follow(&zone, &services, &slices);
        let server = Server::new(zone, config.upstream.clone(), runtime.clone());
        loop {
            if let Err(error) = own_address(&*exec, config.cluster_dns).await {
                tracing::warn!(%error, "the cluster's DNS address was not given to this node");
            }
            if let Err(error) = server.serve(&config).await {
                tracing::warn!(%error, address = %config.address(), "not listening for names; trying again");
            }
            runtime.sleep(RETRY).await;
        }
    })
}

/// Makes the service's address one of this node: packets of pods end here without any translation.
async fn own_address(exec: &dyn Exec, address: Ipv4Addr) -> Result<(), node_sys::ExecError> {
    if address.is_loopback() {
        return Ok(());
    }
    let spec = CommandSpec::new("ip").args(["address", "replace", &format!("{address}/32"), "dev", "lo"]);
    exec.run(spec).await?.success("ip")?;
    let spec = CommandSpec::new("nft").args(["-f", "-"]).stdin(silence(address));
    exec.run(spec).await?.success("nft")?;
    Ok(())
}

/// Rules that outlive us: where nobody listens on the address, nobody refuses either. A resolver takes a refusal for
/// an answer and gives up; it takes silence for a lost packet and asks again, and by then the next agent is there.
fn silence(address: Ipv4Addr) -> String {
    format!(
        "table ip {TABLE}
delete table ip {TABLE}
table ip {TABLE} {{
  chain refusals {{
    type filter hook output priority filter; policy accept;
    ip saddr {address} icmp type destination-unreachable icmp code port-unreachable drop
    ip saddr {address} tcp sport 53 tcp flags & rst == rst drop
  }}
}}
"
    )
}

/// Every change of a service or of its slices makes its names anew.
fn follow(
    zone: &Arc<RwLock<Zone>>,
    services: &Informer<Service>,
    slices: &Informer<Slice>,
) -> (Subscription, Subscription) {
    let renew = {
        let (zone, services, slices) = (Arc::clone(zone), services.clone(), slices.clone());
        move |key: &ObjectKey| {
            let service = services.get(key);
            let own = slices.by_index(BY_SERVICE, &key.to_string());
            let mut zone = zone.write().expect("nothing panics while it is held");
            zone.set(
                key,
                service.as_ref().map(|one| &one.projection),
                own.iter().map(|one| &one.projection),
            );
        }
    };
    let of_slices = renew.clone();
    (
        services.on_change(move |change| renew(change.key())),
        slices.on_change(move |change| {
            for side in change.sides() {
                if let Some((namespace, name)) = side.service.split_once('/') {
                    of_slices(&ObjectKey::new(namespace, name));
                }
            }
        }),
    )
}
