//! The `kubernetes` service in `default`, its endpoints, and the ServiceCIDR its address comes from.

use super::{ObjectAddress, Startup};
use apiserver_registry::{MasterLeases, ObjectPart, RegistryError};
use futures::future::BoxFuture;
use machinery_schema::{Ref, Tree};
use std::net::IpAddr;
use std::time::Duration;

const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";

const CIDR: ObjectAddress<'_> = ObjectAddress {
    group: "networking.k8s.io",
    plural: "servicecidrs",
    namespace: "",
    name: NAME,
};
/// The service that represents this server in the API.
pub(super) const SERVICE: ObjectAddress<'_> = ObjectAddress {
    group: "",
    plural: "services",
    namespace: NAMESPACE,
    name: NAME,
};
const ENDPOINTS: ObjectAddress<'_> = ObjectAddress {
    group: "",
    plural: "endpoints",
    namespace: NAMESPACE,
    name: NAME,
};
const SLICE: ObjectAddress<'_> = ObjectAddress {
    group: "discovery.k8s.io",
    plural: "endpointslices",
    namespace: NAMESPACE,
    name: NAME,
};

/// Interval between checks of the service and its endpoints, as upstream has it.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Makes what is missing, then goes on doing so.
pub(super) fn keep(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(async move {
        refuse_another_range(facts).await?;
        reconcile(facts, Ports::Own).await?;
        let own = facts.clone();
        let keeping = move || reconcile_later(own.clone());
        facts.core.runtime.keep("kubernetes service", keeping).detach();
        Ok(())
    })
}

async fn reconcile_later(facts: Startup) {
    loop {
        tokio::select! {
            biased;
            () = facts.core.stopping.cancelled() => return,
            () = facts.core.runtime.sleep(LOOK_EVERY) => {}
        }
        if let Err(error) = reconcile(&facts, Ports::AsTheyAre).await {
            tracing::warn!(%error, "reconciling the kubernetes service failed");
        }
    }
}

/// Takes this server's address out, where other servers go on.
pub(crate) async fn withdraw(facts: &Startup) -> Result<(), RegistryError> {
    let Some(leases) = leases(facts).filter(|_| is_announced(facts)) else {
        return Ok(());
    };
    leases.give_up(facts.advertised.ip()).await?;
    let others = leases.addresses().await?;
    if others.is_empty() {
        // As upstream's: the last one leaves its address for its next start.
        return Ok(());
    }
    endpoints(facts, &others, Ports::AsTheyAre).await
}

/// Treatment of the announced ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ports {
    /// This server's, which starts now.
    Own,
    /// Ports of the server that started last, as upstream has it: servers behind one address have one port.
    AsTheyAre,
}

/// The entries of this server and others; `None` where no other can be.
fn leases(facts: &Startup) -> Option<MasterLeases<'_>> {
    facts.core.registry.master_leases(facts.core.doors)
}

/// Nothing listens, or only this machine could reach it: nothing is announced.
fn is_announced(facts: &Startup) -> bool {
    facts.advertised.port() != 0 && !facts.advertised.ip().is_loopback()
}

async fn reconcile(facts: &Startup, ports: Ports) -> Result<(), RegistryError> {
    service_cidr(facts).await?;
    service(facts, ports).await?;
    if !is_announced(facts) {
        return Ok(());
    }
    let address = facts.advertised.ip();
    let addresses = match leases(facts) {
        Some(leases) => {
            leases.renew(address).await?;
            leases.addresses().await?
        }
        None => vec![address],
    };
    endpoints(facts, &addresses, ports).await
}

/// Refuses a range that is not the cluster's: its services keep their addresses, and nodes would look for DNS, and for what is a
/// service's address, elsewhere. A default range that is going is on its way to another one.
async fn refuse_another_range(facts: &Startup) -> Result<(), RegistryError> {
    let range = facts.core.config.service_cluster_ip_range.to_string();
    let Some(cidr) = facts.read(CIDR).await?.filter(|cidr| !is_going(cidr)) else {
        return Ok(());
    };
    let ranges: Vec<&str> = cidr
        .get("spec")
        .into_iter()
        .flat_map(|spec| spec.list("cidrs"))
        .filter_map(Ref::as_str)
        .collect();
    if ranges.contains(&range.as_str()) {
        return Ok(());
    }
    Err(RegistryError::BadRequest(format!(
        "--service-cluster-ip-range {range} is not the cluster's, which is {}: start with that, and give services more addresses with \
         another ServiceCIDR; to change it, delete the ServiceCIDR {NAME} first",
        ranges.join(",")
    )))
}

fn is_going(cidr: &Tree) -> bool {
    cidr.at(&["metadata", "deletionTimestamp"])
        .is_some_and(|own| !own.is_null())
}

/// The default range. It is marked ready unless it has conditions; one of another range is left to the operator that changed
/// the flag.
async fn service_cidr(facts: &Startup) -> Result<(), RegistryError> {
    let range = facts.core.config.service_cluster_ip_range;
    let json = format!(
        r#"{{"apiVersion":"networking.k8s.io/v1","kind":"ServiceCIDR","metadata":{{"name":"{NAME}"}},"spec":{{"cidrs":["{range}"]}}}}"#
    );
    facts.create(CIDR, &json).await?;
    let Some(cidr) = facts.read(CIDR).await? else {
        return Ok(());
    };
    let listed = |field: &str, name: &str| {
        let within = cidr
            .get(field)
            .into_iter()
            .flat_map(|own| own.list(name).map(Ref::to_json));
        within.collect::<Vec<_>>()
    };
    let ours = listed("spec", "cidrs") == [format!("\"{range}\"")];
    if ours && !is_going(&cidr) && listed("status", "conditions").is_empty() {
        let now = facts.core.runtime.now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let status = format!(
            r#"{{"status":{{"conditions":[{{"type":"Ready","status":"True","lastTransitionTime":"{now}","reason":"","message":"Kubernetes default Service CIDR is ready"}}]}}}}"#
        );
        facts.patch(CIDR, ObjectPart::Status, &status).await?;
    }
    Ok(())
}

async fn service(facts: &Startup, ports: Ports) -> Result<(), RegistryError> {
    let address = facts.core.config.kubernetes_service_ip();
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    // Without a port of its own the service still has its address, so that pods resolve it.
    let port = if facts.advertised.port() == 0 {
        6443
    } else {
        facts.advertised.port()
    };
    let json = format!(
        r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{NAME}","namespace":"{NAMESPACE}","labels":{{"component":"apiserver","provider":"kubernetes"}}}},"spec":{{"ports":[{{"name":"https","protocol":"TCP","port":443,"targetPort":{port}}}],"clusterIP":"{address}","clusterIPs":["{address}"],"ipFamilies":["{family}"],"ipFamilyPolicy":"SingleStack","sessionAffinity":"None","type":"ClusterIP"}}}}"#
    );
    if !facts.create(SERVICE, &json).await? && (ports == Ports::Own || !is_shared(facts)) {
        let patch = format!(
            r#"{{"spec":{{"ports":[{{"name":"https","protocol":"TCP","port":443,"targetPort":{port}}}]}}}}"#
        );
        facts.patch(SERVICE, ObjectPart::Main, &patch).await?;
    }
    Ok(())
}

/// Reports whether other servers may be announced beside this one.
fn is_shared(facts: &Startup) -> bool {
    facts.core.registry.stored().is_shared()
}

async fn endpoints(facts: &Startup, addresses: &[IpAddr], ports: Ports) -> Result<(), RegistryError> {
    let port = match ports {
        Ports::AsTheyAre if is_shared(facts) => announced_port(facts).await?,
        Ports::Own | Ports::AsTheyAre => None,
    };
    let port = port.unwrap_or(facts.advertised.port());
    let listed = addresses.iter().map(|address| format!(r#"{{"ip":"{address}"}}"#));
    let subsets = format!(
        r#""subsets":[{{"addresses":[{}],"ports":[{{"name":"https","port":{port},"protocol":"TCP"}}]}}]"#,
        listed.collect::<Vec<_>>().join(",")
    );
    let meta = format!(
        r#""metadata":{{"name":"{NAME}","namespace":"{NAMESPACE}","labels":{{"endpointslice.kubernetes.io/skip-mirror":"true"}}}}"#
    );
    let json = format!(r#"{{"apiVersion":"v1","kind":"Endpoints",{meta},{subsets}}}"#);
    if !facts.create(ENDPOINTS, &json).await? {
        facts
            .patch(ENDPOINTS, ObjectPart::Main, &format!("{{{subsets}}}"))
            .await?;
    }
    slice(facts, addresses, port).await
}

async fn slice(facts: &Startup, addresses: &[IpAddr], port: u16) -> Result<(), RegistryError> {
    let is_ipv4 = facts.advertised.is_ipv4();
    let family = if is_ipv4 { "IPv4" } else { "IPv6" };
    // A slice has addresses of one family.
    let listed = addresses.iter().filter(|address| address.is_ipv4() == is_ipv4);
    let listed =
        listed.map(|address| format!(r#"{{"addresses":["{address}"],"conditions":{{"ready":true}}}}"#));
    let lists = format!(
        r#""endpoints":[{}],"ports":[{{"name":"https","protocol":"TCP","port":{port}}}]"#,
        listed.collect::<Vec<_>>().join(",")
    );
    let meta = format!(
        r#""metadata":{{"name":"{NAME}","namespace":"{NAMESPACE}","labels":{{"kubernetes.io/service-name":"{NAME}"}}}}"#
    );
    let json = format!(
        r#"{{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice",{meta},"addressType":"{family}",{lists}}}"#
    );
    if !facts.create(SLICE, &json).await? {
        facts
            .patch(SLICE, ObjectPart::Main, &format!("{{{lists}}}"))
            .await?;
    }
    Ok(())
}

/// The port that the endpoints say.
async fn announced_port(facts: &Startup) -> Result<Option<u16>, RegistryError> {
    let Some(endpoints) = facts.read(ENDPOINTS).await? else {
        return Ok(None);
    };
    let document: serde_json::Value = serde_json::from_str(&endpoints.root().to_json())
        .map_err(|error| RegistryError::Internal(error.to_string()))?;
    let port = document
        .pointer("/subsets/0/ports/0/port")
        .and_then(serde_json::Value::as_u64);
    Ok(port.and_then(|port| u16::try_from(port).ok()))
}
