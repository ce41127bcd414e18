//! The `kubernetes` service in `default`, its endpoints, and the ServiceCIDR its address comes from.

use super::{Place, Startup};
use apiserver_registry::{Part, RegistryError};
use futures::future::BoxFuture;
use machinery_schema::Ref;
use std::net::IpAddr;
use std::time::Duration;

const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";

const CIDR: Place<'_> = Place {
    group: "networking.k8s.io",
    plural: "servicecidrs",
    namespace: "",
    name: NAME,
};
/// What stands for this server in the API.
pub(super) const SERVICE: Place<'_> = Place {
    group: "",
    plural: "services",
    namespace: NAMESPACE,
    name: NAME,
};
const ENDPOINTS: Place<'_> = Place {
    group: "",
    plural: "endpoints",
    namespace: NAMESPACE,
    name: NAME,
};
const SLICE: Place<'_> = Place {
    group: "discovery.k8s.io",
    plural: "endpointslices",
    namespace: NAMESPACE,
    name: NAME,
};

/// How often it is looked whether all of it is still there, as upstream does.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Makes what is missing, then goes on doing so.
pub(super) fn keep(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(async move {
        reconcile(facts).await?;
        let own = facts.clone();
        let keeping = move || look_again(own.clone());
        facts.core.runtime.keep("kubernetes service", keeping).detach();
        Ok(())
    })
}

async fn look_again(facts: Startup) {
    loop {
        facts.core.runtime.sleep(LOOK_EVERY).await;
        if let Err(error) = reconcile(&facts).await {
            tracing::warn!(%error, "keeping the kubernetes service failed");
        }
    }
}

async fn reconcile(facts: &Startup) -> Result<(), RegistryError> {
    service_cidr(facts).await?;
    service(facts).await?;
    // Nothing listens, or only this machine could reach it: nothing is announced.
    if facts.advertised.port() == 0 || facts.advertised.ip().is_loopback() {
        return Ok(());
    }
    endpoints(facts).await
}

/// The default range. It is said to be ready unless somebody says something about that; one of another range is left to
/// whoever changed the flag.
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
    let going = cidr
        .at(&["metadata", "deletionTimestamp"])
        .is_some_and(|own| !own.is_null());
    if ours && !going && listed("status", "conditions").is_empty() {
        let now = facts.core.runtime.now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let status = format!(
            r#"{{"status":{{"conditions":[{{"type":"Ready","status":"True","lastTransitionTime":"{now}","reason":"","message":"Kubernetes default Service CIDR is ready"}}]}}}}"#
        );
        facts.patch(CIDR, Part::Status, &status).await?;
    }
    Ok(())
}

async fn service(facts: &Startup) -> Result<(), RegistryError> {
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
    if !facts.create(SERVICE, &json).await? {
        let patch = format!(
            r#"{{"spec":{{"ports":[{{"name":"https","protocol":"TCP","port":443,"targetPort":{port}}}]}}}}"#
        );
        facts.patch(SERVICE, Part::Main, &patch).await?;
    }
    Ok(())
}

async fn endpoints(facts: &Startup) -> Result<(), RegistryError> {
    let (address, port) = (facts.advertised.ip(), facts.advertised.port());
    let subsets = format!(
        r#""subsets":[{{"addresses":[{{"ip":"{address}"}}],"ports":[{{"name":"https","port":{port},"protocol":"TCP"}}]}}]"#
    );
    let meta = format!(
        r#""metadata":{{"name":"{NAME}","namespace":"{NAMESPACE}","labels":{{"endpointslice.kubernetes.io/skip-mirror":"true"}}}}"#
    );
    let json = format!(r#"{{"apiVersion":"v1","kind":"Endpoints",{meta},{subsets}}}"#);
    if !facts.create(ENDPOINTS, &json).await? {
        facts
            .patch(ENDPOINTS, Part::Main, &format!("{{{subsets}}}"))
            .await?;
    }
    let family = match address {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    };
    let lists = format!(
        r#""endpoints":[{{"addresses":["{address}"],"conditions":{{"ready":true}}}}],"ports":[{{"name":"https","protocol":"TCP","port":{port}}}]"#
    );
    let meta = format!(
        r#""metadata":{{"name":"{NAME}","namespace":"{NAMESPACE}","labels":{{"kubernetes.io/service-name":"{NAME}"}}}}"#
    );
    let json = format!(
        r#"{{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice",{meta},"addressType":"{family}",{lists}}}"#
    );
    if !facts.create(SLICE, &json).await? {
        facts.patch(SLICE, Part::Main, &format!("{{{lists}}}")).await?;
    }
    Ok(())
}
