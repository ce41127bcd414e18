//! Shares of namespaces in what all services take from: the cluster's addresses, and the ports of every node. A namespace's
//! services have a quarter of each at most, and no more than they leave free for others, unless labels of the Namespace say otherwise.

use crate::engine::context::{LARGE_BODY_BYTES, RequestContext};
use crate::engine::error::RegistryError;
use crate::engine::options::{ListOptions, RevisionMatch};
use crate::engine::registry::Registry;
use crate::engine::scope::Scope;
use crate::engine::store::Store;
use crate::engine::user_class::SYSTEM_NAMESPACES;
use apiserver_storage::Entry;
use machinery_meta::GroupResource;
use machinery_schema::Ref;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Label of a Namespace that sets the number of cluster addresses that its services may have; 0 sets no bound.
pub(crate) const CLUSTER_IPS: &str = "knarr.dev/cluster-ip-quota";
/// The same of ports of nodes.
pub(crate) const NODE_PORTS: &str = "knarr.dev/node-port-quota";

/// A namespace has this part of what there is, where its Namespace says nothing.
const SHARE_PART: usize = 4;
/// A namespace may have so many of few: where there are no more, one namespace may have all.
const LEAST_SHARE: usize = 64;

/// The number that a value of one of the labels means; none where it means nothing.
pub(crate) fn number(value: &str) -> Option<usize> {
    value.parse().ok()
}

/// A thing that services take from a common pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pool {
    ClusterIps,
    NodePorts,
}

impl Pool {
    fn label(self) -> &'static str {
        match self {
            Self::ClusterIps => CLUSTER_IPS,
            Self::NodePorts => NODE_PORTS,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::ClusterIps => "cluster IPs",
            Self::NodePorts => "node ports",
        }
    }

    /// Reports whether a stored service may have something of it, by its header.
    fn concerns(self, entry: &Entry) -> bool {
        let field = |path| entry.record.header.field(path).unwrap_or_default();
        match self {
            Self::ClusterIps => !matches!(field("spec.clusterIP"), "" | "None"),
            Self::NodePorts => matches!(field("spec.type"), "NodePort" | "LoadBalancer"),
        }
    }
}

/// A service that is about to take something.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taking<'a> {
    pub(super) pool: Pool,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// Beyond what it has.
    pub(super) more: usize,
    /// Free or not.
    pub(super) all: usize,
    /// Taken by services of all namespaces, with this one.
    pub(super) taken: usize,
}

impl Taking<'_> {
    /// The share of a namespace that says nothing, which has so much already. Four namespaces with a quarter each would leave
    /// nothing to any other; so the first ones have a quarter, and each further one half of what is left.
    fn share(&self, has: usize) -> usize {
        let most = (self.all / SHARE_PART).max(LEAST_SHARE);
        if self.all <= LEAST_SHARE {
            return most;
        }
        let free = (self.all + self.more).saturating_sub(self.taken);
        most.min((has + free) / 2)
    }
}

/// Refuses what is beyond the share of the service's namespace.
pub(super) async fn check(
    ctx: &RequestContext,
    registry: &Registry,
    taking: Taking<'_>,
) -> Result<(), RegistryError> {
    let Taking { pool, namespace, .. } = taking;
    if taking.more == 0 || SYSTEM_NAMESPACES.contains(&namespace) {
        return Ok(());
    }
    let own = own_share(registry, pool, namespace).await?;
    // Namespaces that together have no more than one may have need no accounts.
    let share = own.unwrap_or_else(|| taking.share(0));
    if own == Some(0) || taking.taken <= share {
        return Ok(());
    }
    let has = held(ctx, registry, pool, namespace).await?;
    let share = own.unwrap_or_else(|| taking.share(has));
    if has + taking.more <= share {
        return Ok(());
    }
    let detail = format!(
        "exceeded the share of namespace {namespace} in the cluster's {words}: requested {more}, used {has}, limited {share}; \
         the label {label} of the Namespace sets another",
        words = pool.words(),
        more = taking.more,
        label = pool.label(),
    );
    Err(RegistryError::forbidden(
        &GroupResource::new("", "services"),
        taking.name,
        detail,
    ))
}

async fn own_share(registry: &Registry, pool: Pool, namespace: &str) -> Result<Option<usize>, RegistryError> {
    let Some(namespaces) = registry.store("", "v1", "namespaces") else {
        return Ok(None);
    };
    match namespaces
        .get(&Scope::Cluster, namespace, RevisionMatch::Any)
        .await
    {
        Ok(entry) => Ok(entry.record.header.label(pool.label()).and_then(number)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Number of things that stored services of a namespace have.
async fn held(
    ctx: &RequestContext,
    registry: &Registry,
    pool: Pool,
    namespace: &str,
) -> Result<usize, RegistryError> {
    let Some(services) = registry.store("", "v1", "services") else {
        return Ok(0);
    };
    let page = services
        .list(&Scope::of(namespace), &ListOptions::default())
        .await?;
    let concerned: Vec<&Arc<Entry>> = page.entries.iter().filter(|entry| pool.concerns(entry)).collect();
    if pool == Pool::ClusterIps {
        return Ok(concerned.len());
    }
    let bytes = concerned.iter().map(|entry| entry.record.len()).sum();
    ctx.heavy_from(bytes, LARGE_BODY_BYTES).await?;
    ports_of(ctx, &services, &concerned).await
}

async fn ports_of(
    ctx: &RequestContext,
    services: &Store,
    entries: &[&Arc<Entry>],
) -> Result<usize, RegistryError> {
    let mut count = 0;
    for entry in entries {
        ctx.in_time()?;
        count += node_ports(services.decode(entry)?.root()).len();
        tokio::task::consume_budget().await;
    }
    Ok(count)
}

/// The node ports a stored service has.
pub(super) fn node_ports(service: Ref<'_>) -> BTreeSet<i64> {
    let Some(spec) = service.get("spec") else {
        return BTreeSet::new();
    };
    let number = |value: Ref<'_>, name: &str| value.get(name).and_then(Ref::as_i64).unwrap_or(0);
    let ports = spec.list("ports").map(|port| number(port, "nodePort"));
    ports
        .chain([number(spec, "healthCheckNodePort")])
        .filter(|port| *port != 0)
        .collect()
}
